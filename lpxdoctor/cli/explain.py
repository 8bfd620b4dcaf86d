"""lpxdoctor explain: print what an id means, why it matters, how to fix it, and where that is known from."""

import shutil
import textwrap

import click

from lpxdoctor import catalog
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.report import typed
from lpxdoctor.report.checks import ExplainedDocument, explained, explained_rule
from lpxdoctor.report.encoding import pretty
from lpxdoctor.report.text import flowing

_WIDEST = 100
_SHOWN = 8  # --format json has all


@click.command("explain", epilog=_options.examples("lpxdoctor explain driver.library-mismatch"))
@click.argument("id_", metavar="ID")
@_options.output_format()
def command(id_: str, form: str) -> int:
    """Show why a check matters, how to fix what it finds, and its source.

    ID is that of any finding of a report, of one host or of many.

    Exit status: 0 told, 64 nothing has the id, or wrong use.
    """
    told = _found(id_)
    if form == "json":
        print_document(pretty(told))
    else:
        _print(told)
    return 0


def _found(id_: str) -> ExplainedDocument:
    checks = catalog.load()
    by_id = {check.id: check for check in checks}
    if id_ in by_id:
        return explained(by_id[id_], checks)
    from lpxdoctor.fleet.rules import RULES  # noqa: PLC0415 - one host has none of them

    rules = {rule.id: rule for rule in RULES.values()}
    if id_ in rules:
        return explained_rule(rules[id_])
    raise catalog.no_such(id_, (*by_id, *rules))


def _print(told: ExplainedDocument) -> None:
    where = f"layer {told.layer}" if told.layer else "of several hosts together"
    print(f"{_wrapped(f'{told.title}.')}\n\n{told.id}, {told.severity}, {where}\n")
    for label, text in (("Why", told.why), ("Fix", told.fix)):
        print(f"{label}:\n{_wrapped(text, '  ')}\n")
    print(f"Source:\n{textwrap.indent(told.source, '  ')}\n")
    if told.playbook:
        print(_wrapped(f"The playbook that puts it right: {told.playbook}. Type:\n    sudo lpxdoctor fix {told.id}"))
    if told.after:
        print(_wrapped(f"Not judged while one of these fails: {', '.join(told.after)}"))
    if told.before:
        more = f" and {len(told.before) - _SHOWN} more" if len(told.before) > _SHOWN else ""
        print(_wrapped(f"Not judged while this one fails: {', '.join(told.before[:_SHOWN])}{more}"))


def _wrapped(text: str, indent: str = "") -> str:
    """Return text for the terminal's width; indented lines are commands, which can still be copied."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines: list[str] = []
    for line in flowing(text).splitlines():
        command = line.lstrip()
        before = indent + line[: len(line) - len(command)]
        if before != indent:
            lines += (before + part for part in typed.lines(command, width - len(before)))
        else:
            lines += textwrap.wrap(
                line,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)
