"""A fleet's report in, its terminal form out: a line and one cause for each host that is not fit, and odd ones out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, OverflowMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lpxdoctor.report.fleet import ORDER, DriftDocument, FleetDocument, HostDocument, VerdictWord, causes
from lpxdoctor.report.names import about, few, short, value
from lpxdoctor.report.printed import show
from lpxdoctor.report.text import signs_of

_FOLDED_BEYOND = 6  # hosts that are fit, or that share a warning
_NAMES_SHOWN = 3
_NAMES_WIDTH = 40
_A_SCREEN = 20  # hosts
_SIGNS = {"failed": "fail", "no answer": "fail", "unknown": "unknown", "warning": "warn", "healthy": "ok"}
_FOUND = {"fail": "failed", "warn": "warning"}
_STYLES = {"failed": "bold red", "no answer": "bold red", "unknown": "bold", "warning": "yellow", "healthy": "green"}


def render(report: FleetDocument, console: Console, *, seconds: float | None = None, verbose: bool = False) -> None:
    """Print the report.

    Args:
        report: what to print.
        console: where to; its width and encoding decide the lay-out and the signs.
        seconds: how long it took; None for recorded evidence.
        verbose: a line for every host, and its whole message.
    """
    signs = signs_of(console)
    show(console, *_blocks(report, signs, seconds, verbose=verbose))


def _blocks(
    report: FleetDocument, signs: dict[str, str], seconds: float | None, *, verbose: bool
) -> Iterator[RenderableType]:
    yield _counts(report, signs, seconds)
    yield from _hosts(report.hosts, signs, verbose=verbose)
    for finding in report.findings:
        yield ""
        sign, style = _SIGNS[_FOUND[finding.severity]], _STYLES[_FOUND[finding.severity]]
        yield Text.assemble((f"{signs[sign]} {finding.id}", style), f"  {finding.message}")
        yield Padding(Text(finding.fix, "dim"), (0, 0, 0, 2), expand=False)
    if report.odd_ones_out:
        yield ""
        yield Text("Odd ones out", "bold")
        yield from (Padding(_drift(drift, signs), (0, 0, 0, 2), expand=False) for drift in report.odd_ones_out)
    yield from _causes(report.hosts)
    if len(report.hosts) > _A_SCREEN:  # the first line has scrolled away
        yield ""
        yield _counts(report, signs, seconds)


def _causes(hosts: Sequence[HostDocument]) -> Iterator[RenderableType]:
    """Yield every cause with all of its hosts, the most frequent first, and what tells more of it."""
    groups = causes(hosts)
    if not groups:
        return
    yield ""
    yield Text("Why, and what to do", "bold")
    grid = Table.grid(padding=(0, 2))
    for id_, names in groups.items():
        grid.add_row(Text(_hosts_of(len(names)), "dim"), Text(f"lpxdoctor explain {id_}"))
        if len(names) > 1:
            grid.add_row("", Text(short(names), "dim", overflow="fold"))
    yield Padding(grid, (0, 0, 0, 2), expand=False)


def _counts(report: FleetDocument, signs: dict[str, str], seconds: float | None) -> Text:
    """Return the first line: every host in exactly one of its numbers."""
    summary = report.summary
    numbers = (
        (summary.healthy, "fit"),
        (summary.failed, "failed"),
        (summary.warning, "warning" if summary.warning == 1 else "warnings"),
        (summary.unknown, "not judged enough"),
        (summary.no_answer, "did not answer"),
    )
    parts = [_hosts_of(summary.hosts), *(f"{count} {word}" for count, word in numbers if count)]
    parts += [f"{seconds:.0f} s"] if seconds is not None else []
    return Text(f" {signs['dot']} ".join(parts), "bold")


def _hosts_of(count: int) -> str:
    return "1 host" if count == 1 else f"{count:,} hosts"


def _hosts(hosts: Sequence[HostDocument], signs: dict[str, str], *, verbose: bool) -> Iterator[RenderableType]:
    """Yield the hosts, the worst first; those that are fit to serve are folded where they are many."""
    lines: list[tuple[VerdictWord, Sequence[HostDocument]]] = []
    for verdict in ORDER:
        groups: dict[str, list[HostDocument]] = {}
        for host in (host for host in hosts if host.verdict == verdict):
            groups.setdefault(host.cause.id if host.cause else "", []).append(host)
        for group in groups.values():
            fit = verdict in ("warning", "healthy")
            folded = fit and len(group) > _FOLDED_BEYOND and not verbose
            lines.extend([(verdict, group)] if folded else [(verdict, [host]) for host in group])
    if lines:
        yield ""
        yield _table(lines, signs, verbose=verbose)


def _table(
    lines: Sequence[tuple[VerdictWord, Sequence[HostDocument]]], signs: dict[str, str], *, verbose: bool
) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    cut: OverflowMethod = "crop" if signs["more"].isascii() else "ellipsis"  # which is a sign of its own
    grid.add_column(no_wrap=True, overflow=cut, max_width=28)
    grid.add_column(overflow="fold" if verbose else cut, no_wrap=not verbose, ratio=1)
    told: set[str] = set()  # reasons whose remedy is shown already
    for verdict, group in lines:
        host, many = group[0], len(group) > 1
        name = _hosts_of(len(group)) if many else host.name
        said = _said(host, names=_names(group, signs) if many else "")
        grid.add_row(Text(f"{signs[_SIGNS[verdict]]} {name}", _STYLES[verdict]), said)
        if host.no_answer and (verbose or host.no_answer.reason not in told):
            told.add(host.no_answer.reason)
            said.no_wrap, said.overflow = False, "fold"  # whole: it ends with what was seen
            grid.add_row("", Text(host.no_answer.do, "dim", overflow="fold", no_wrap=False))
    return grid


def _names(group: Sequence[HostDocument], signs: dict[str, str]) -> str:
    return f"{', '.join(host.name for host in group[:_NAMES_SHOWN])}, {signs['more']} (-v lists them)"


def _said(host: HostDocument, names: str = "") -> Text:
    """Return what a host's line says: its cause and what was seen, or what makes it fit."""
    if host.no_answer:
        return Text(f"no answer: {host.no_answer.reason}")
    cause = host.cause
    if cause:
        return Text.assemble((cause.id, "bold"), "  ", names or about(cause.subject, cause.message))
    report = host.report
    if host.verdict == "unknown" and report:
        reasons = Counter(check.reason for check in report.unknown)
        reason = reasons.most_common(1)[0][0] if reasons else "no check applies"
        return Text(f"only {report.coverage.ran} of {report.coverage.of} checks could be judged: {reason}")
    facts = (host.facts[key] for key in ("GPUs", "driver", "kernel") if key in host.facts)
    return Text(names or ", ".join(facts), "dim")


def _drift(drift: DriftDocument, signs: dict[str, str]) -> Text:
    """Return a fact's line: what the odd ones have, and what the others do."""
    parts = [
        f"{value(odd.value)} on {few(odd.hosts, _NAMES_WIDTH, signs['more'])}" for odd in drift.others[:_NAMES_SHOWN]
    ]
    if len(drift.others) > _NAMES_SHOWN:
        parts.append(f"{len(drift.others) - _NAMES_SHOWN} more values")
    most = f"; {value(drift.majority)} on the other {drift.majority_hosts:,}" if drift.majority else ""
    return Text.assemble((f"{drift.fact}: ", "bold"), ", ".join(parts) + most)
