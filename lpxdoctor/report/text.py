"""A judgement in, the report for a terminal out: one cause first, quiet when healthy, counts that add up."""

import re
from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lpxdoctor.check import Finding, Severity
from lpxdoctor.evaluate import Judgement, Result, State, Verdict
from lpxdoctor.report.headline import fitness, headline, outlook
from lpxdoctor.report.names import about
from lpxdoctor.report.printed import show
from lpxdoctor.report.steps import commands, fix, has_playbook, steps
from lpxdoctor.report.typed import Typed

_WARNINGS_SHOWN = 3
_SEVERAL = 2
_REASONS_SHOWN = 4
_IDS_SHOWN = 3
_STYLES = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "cyan"}
_WORDS = {Severity.FAIL: ("cause", "causes"), Severity.WARN: ("warning", "warnings"), Severity.INFO: ("note", "notes")}


def render(judgement: Judgement, console: Console, *, seconds: float | None = None, verbose: bool = False) -> None:
    """Print the report.

    Args:
        judgement: what to report.
        console: where to; its width and encoding decide the lay-out and the signs.
        seconds: how long collecting and judging took; None for recorded evidence.
        verbose: every finding in full, and a line for every check.
    """
    signs = signs_of(console)
    show(console, *_blocks(judgement, signs, seconds, verbose=verbose))


def signs_of(console: Console) -> dict[str, str]:
    """Return the signs that the console's encoding has: a GBK or ASCII terminal lacks the usual ones."""
    usual = {"fail": "✗", "warn": "!", "info": "i", "ok": "✓", "unknown": "?", "dot": "·", "more": "…"}
    try:
        "".join(usual.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return {**usual, "fail": "X", "ok": "OK", "dot": "-", "more": "..."}
    return usual


def _blocks(
    judgement: Judgement, signs: dict[str, str], seconds: float | None, *, verbose: bool
) -> Iterator[RenderableType]:
    """Yield the report from top to bottom."""
    verdict = judgement.verdict
    if verdict in (Verdict.HEALTHY, Verdict.WARNING):
        yield Text(f"{signs['ok']} {judgement.host} is fit to serve: {fitness(judgement.facts)}", "green")
        yield from (Text(f"  {line}") for line in outlook(judgement.facts))
    else:
        yield Text(f" {signs['dot']} ".join([judgement.host, *headline(judgement.facts)]), "bold")
    failures = [result for result in judgement.found if result.severity is Severity.FAIL]
    for result in failures:
        yield ""
        yield from in_full(judgement, result, signs)
    yield from _in_all(judgement)
    if verdict is Verdict.UNKNOWN:
        yield ""
        yield from _too_little(judgement, signs)
    others = [result for result in judgement.found if result.severity is not Severity.FAIL]
    yield from _others(judgement, others, signs, verbose=verbose)
    if verbose:
        yield from _every_check(judgement)
    yield from _waived(judgement)
    yield ""
    yield _counts(judgement, signs, seconds)


def in_full(judgement: Judgement, result: Result, signs: dict[str, str]) -> Iterator[RenderableType]:
    """Yield one result with all that was seen, why it matters, what to type, how to be sure, and what waits for it."""
    check = result.check
    yield _title(result, signs)
    for finding in result.findings:
        yield Padding(Text(about(finding.subject, finding.message)), (0, 0, 0, 4), expand=False)
        if finding.seen:
            yield Padding(_seen(finding), (0, 0, 0, 4), expand=False)
    yield _labelled("Why", Group(*told(check.why)))
    yield _labelled("Do", Group(*_todo(judgement, result)))
    confirm = tuple(dict.fromkeys(line for finding in result.findings for line in finding.confirm))
    if confirm:
        yield _labelled("Sure", Group(*(Typed(line, "") for line in confirm)))
    waiting = judgement.blocked_by(check.id)
    if waiting:
        ids = ", ".join(waiting[:_IDS_SHOWN]) + (f", {signs['more']}" if len(waiting) > _IDS_SHOWN else "")
        noun = "check waits" if len(waiting) == 1 else "checks wait"
        yield Padding(Text(f"{len(waiting)} {noun} for this one ({ids})", "dim"), (0, 0, 0, 2), expand=False)


def _todo(judgement: Judgement, result: Result) -> Iterator[RenderableType]:
    """Yield what to type: the playbook's command before what it is by hand."""
    typed = commands(result)
    by_hand = [Typed(command) for command in typed] or told(result.check.cure)
    if has_playbook(judgement, result):
        yield Typed(fix([result.check.id]))
        yield Text("or by hand:", "dim")
    yield from by_hand


def _in_all(judgement: Judgement) -> Iterator[RenderableType]:
    """Yield the shortest way through several causes; one cause has told its own."""
    rows = steps(judgement)
    if len([result for result in judgement.found if result.failed]) < _SEVERAL:
        return
    grid = Table.grid(padding=(0, 2))
    for number, step in enumerate(rows, 1):
        grid.add_row(Text(f"  {number}"), Typed(step))
    yield ""
    yield Text("For all of them, in this order:", "bold")
    yield grid


def told(text: str) -> Iterator[RenderableType]:
    """Yield a docstring's section, its commands so that they can be copied."""
    for line in flowing(text).splitlines():
        command = line.strip()
        yield Padding(Typed(command, ""), (0, 0, 0, len(line) - len(line.lstrip())), expand=False)


def flowing(text: str) -> str:
    """Return a docstring's section for any width: its lines joined, but for indented ones, which are commands."""
    return re.sub(r"(?m)^(\S.*)\n(?=\S)", r"\1 ", text)


def _title(result: Result, signs: dict[str, str]) -> RenderableType:
    """Return the headline of a result, its id at the right where both fit on a line."""
    style = _STYLES[result.severity]
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(Text(f"{signs[result.severity.value]} {result.check.title}", style), Text(result.check.id, "dim"))
    return grid


def _seen(finding: Finding) -> RenderableType:
    grid = Table.grid(padding=(0, 3))
    placed = any(seen.where for seen in finding.seen)  # an empty column would still take room
    for seen in finding.seen:
        grid.add_row(Text(seen.what), Text(seen.value, "bold"), *([Text(seen.where, "dim")] if placed else []))
    return grid


def _labelled(label: str, content: RenderableType) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(Text(f"  {label.ljust(4)}", "bold"), content)
    return grid


def _others(
    judgement: Judgement, others: list[Result], signs: dict[str, str], *, verbose: bool
) -> Iterator[RenderableType]:
    """Yield warnings as a line each, and notes only when asked for everything."""
    shown = 0
    for result in others:
        if verbose:
            yield ""
            yield from in_full(judgement, result, signs)
        elif result.severity is Severity.WARN and shown < _WARNINGS_SHOWN:
            yield ""
            yield _title(result, signs)
            for finding in result.findings[:1]:
                yield Padding(Text(about(finding.subject, finding.message)), (0, 0, 0, 4), expand=False)
            shown += 1
    left = [result for result in others if result.severity is Severity.WARN][shown:]
    if left and not verbose:
        more = "1 more warning" if len(left) == 1 else f"{len(left)} more warnings"
        yield ""
        yield Text(f"{signs['warn']} {more}: -v shows them", "yellow")


def _too_little(judgement: Judgement, signs: dict[str, str]) -> Iterator[RenderableType]:
    """Yield why a host in which nothing failed is still not called healthy."""
    ran, of = judgement.coverage
    yield Text(
        f"{signs['unknown']} Only {ran} of {of} checks could be judged, so this host is not called healthy", "bold"
    )
    for reason, count in _reasons(judgement).most_common(_REASONS_SHOWN):
        noun = "check" if count == 1 else "checks"
        yield Padding(Text(f"{count} {noun}: {reason}"), (0, 0, 0, 4), expand=False)


def _reasons(judgement: Judgement) -> Counter[str]:
    return Counter(result.reason for result in judgement.of(State.UNKNOWN, State.CRASHED))


def _every_check(judgement: Judgement) -> Iterator[RenderableType]:
    yield ""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for result in judgement.results:
        note = f"by {result.blocked_by}" if result.blocked_by else result.reason
        grid.add_row(Text(result.state.value), Text.assemble(result.check.id, (f"  {note}" if note else "", "dim")))
    yield grid


def _waived(judgement: Judgement) -> Iterator[RenderableType]:
    for result in judgement.of(State.WAIVED):
        if result.waiver:
            yield Text(f"waived until {result.waiver.until}: {result.check.id} ({result.waiver.reason})", "dim")


def _counts(judgement: Judgement, signs: dict[str, str], seconds: float | None) -> Text:
    """Return the last line: every check in exactly one of its numbers."""
    by_severity = Counter(result.severity for result in judgement.found)
    found = [f"{count} {_WORDS[severity][count != 1]}" for severity in Severity if (count := by_severity[severity])]
    states = (
        (State.PASS, "fine"),
        (State.BLOCKED, "blocked"),
        (State.NOT_APPLICABLE, "not applicable"),
        (State.WAIVED, "waived"),
        (State.UNKNOWN, "unknown"),
        (State.CRASHED, "crashed (a defect of lpxdoctor)"),
    )
    rest = [f"{count} {word}" for state, word in states if (count := len(judgement.of(state)))]
    ran, of = judgement.coverage
    parts = [", ".join(found), ", ".join(rest), f"{ran} of {of} judged"]
    parts += [f"{seconds:.1f} s"] if seconds is not None else []
    return Text(f" {signs['dot']} ".join(part for part in parts if part), "dim")
