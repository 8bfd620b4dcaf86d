"""lpxdoctor explain: print what a check looks for, why it matters, how to fix it, and where that is known from."""

import difflib
import shutil
import textwrap

import click

from lpxdoctor import bundled, catalog
from lpxdoctor.errors import UsageError
from lpxdoctor.report.text import flowing

_WIDEST = 100


@click.command("explain")
@click.argument("id_", metavar="ID")
def command(id_: str) -> int:
    """Show why a check matters, how to fix what it finds, and its source.

    Exit status: 0 told, 64 no check has the id.
    """
    checks = {check.id: check for check in catalog.load()}
    check = checks.get(id_)
    if check is None:
        near = difflib.get_close_matches(id_, checks, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Type: lpxdoctor checks"
        raise UsageError(f"No check has the id {id_}. {hint}")
    waits = [other.id for other in checks.values() if id_ in other.after]
    print(f"{_wrapped(f'{check.title}.')}\n\n{check.id}, {check.severity.value}, layer {check.layer}\n")
    for label, text in (("Why", check.why), ("Fix", check.cure)):
        print(f"{label}:\n{_wrapped(text, '  ')}\n")
    print(f"Source:\n{textwrap.indent(check.source, '  ')}\n")
    if check.fix and (bundled.PLAYBOOKS / f"{check.fix}.yml").exists():
        print(f"The playbook that puts it right: {check.fix}. Type: lpxdoctor fix {check.id}")
    if check.after:
        print(_wrapped(f"Not judged while one of these fails: {', '.join(check.after)}"))
    if waits:
        print(_wrapped(f"Not judged while this one fails: {', '.join(waits)}"))
    return 0


def _wrapped(text: str, indent: str = "") -> str:
    """Return text for the terminal's width; indented lines are commands, which stay whole."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines: list[str] = []
    for line in flowing(text).splitlines():
        whole = line.startswith(" ") or not line
        filled = (
            [f"{indent}{line}"]
            if whole
            else textwrap.wrap(
                line,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        lines += filled
    return "\n".join(lines)
