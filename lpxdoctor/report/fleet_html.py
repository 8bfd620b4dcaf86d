"""A fleet's report in, one HTML page out: a table that sorts and filters without a script, from this file alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from lpxdoctor.report.fleet import ORDER, FleetDocument, HostDocument, causes
from lpxdoctor.report.json import FindingDocument
from lpxdoctor.report.names import about, few, short, value
from lpxdoctor.report.text import flowing

_WORDS = {
    "failed": "failed",
    "no answer": "no answer",
    "unknown": "not judged enough",
    "warning": "warning",
    "healthy": "fit",
}
_NAMES_WIDTH = 80
_SEVERITIES = {"fail": "failed", "warn": "warning"}
_STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e4e7eb); --dim: light-dark(#5b6570, #9aa5b1);
  --page: light-dark(#fff, #14171a); --line: light-dark(#d9dee3, #2c3238); --odd: light-dark(#fff1c2, #4a3d10);
  --failed: light-dark(#b3261e, #ff8a80); --warning: light-dark(#8a5a00, #ffcc66);
  --healthy: light-dark(#1a7f37, #7ee08f); }
body { margin: 2rem auto; max-width: 110rem; padding: 0 1rem; color: var(--text); background: var(--page);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem }
code, .id { font-family: ui-monospace, monospace; font-size: .92em }
.dim { color: var(--dim) } .failed, .no-answer { color: var(--failed) } .warning { color: var(--warning) }
.healthy { color: var(--healthy) } .odd { background: var(--odd); border-radius: 3px; padding: 0 .2em }
fieldset { border: 0; padding: 0; margin: .3rem 0 } legend { float: left; width: 4.5rem; color: var(--dim) }
label { margin-right: 1rem; white-space: nowrap; cursor: pointer }
.wide { overflow-x: auto } [role=table] { display: grid;  border-top: 1px solid var(--line) }
[role=rowgroup], [role=row] { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid }
[role=row] { border-bottom: 1px solid var(--line) }
[role=cell], [role=columnheader] { padding: .35rem .8rem .35rem 0; overflow-wrap: break-word; min-width: 0 }
[role=columnheader] { font-weight: 600; color: var(--dim) }
summary { cursor: pointer } dl { margin: .4rem 0 .8rem 1rem } dt { font-weight: 600 } dd { margin: 0 0 .4rem 1rem;
  white-space: pre-line }
"""


def render(report: FleetDocument) -> str:
    """Return the page; it names no other file and has no script."""
    common = {drift.fact: drift.majority for drift in report.odd_ones_out}
    columns = list(common)  # what is the same everywhere needs no column
    orders = _orders(report.hosts, columns)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n<title>lpxdoctor: fleet</title>\n'
        f"<style>{_STYLE}{_sorting(orders)}{_filtering()}</style>\n"
        f"<h1>{_title(report)}</h1>\n{_numbers(report)}\n{_findings(report)}{_causes(report)}"
        f"{_same(report, columns)}{_odd(report)}"
        f"<h2>Hosts</h2>\n{_controls(list(orders))}\n"
        f'<div class="wide"><div role="table" style="grid-template-columns: {_widths(columns)}">\n'
        f"{_head(columns)}\n"
        '<div role="rowgroup">\n'
        + "\n".join(_row(host, index, columns, common, orders) for index, host in enumerate(report.hosts))
        + "\n</div></div></div>\n"
        f'<p class="dim">lpxdoctor {escape(report.lpxdoctor)}. Why a check matters and what to do: '
        "<code>lpxdoctor explain ID</code></p>\n</html>\n"
    )


def _title(report: FleetDocument) -> str:
    count = report.summary.hosts
    return "1 host" if count == 1 else f"{count:,} hosts"


def _numbers(report: FleetDocument) -> str:
    counts = Counter(host.verdict for host in report.hosts)
    parts = [f'<span class="{_class(word)}">{counts[word]:,} {_WORDS[word]}</span>' for word in ORDER if counts[word]]
    return "<p>" + " · ".join(parts) + "</p>"


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _same(report: FleetDocument, columns: Sequence[str]) -> str:
    """Return what all hosts that say it have in common."""
    values = {fact: value for host in report.hosts for fact, value in host.facts.items() if fact not in columns}
    parts = (f"{escape(fact)} <b>{escape(value)}</b>" for fact, value in values.items())
    return f"<p>The same on every host that tells: {', '.join(parts)}</p>\n" if values else ""


def _findings(report: FleetDocument) -> str:
    """Return what is wrong with several hosts together."""
    return "".join(
        f'<p><b class="{_SEVERITIES[one.severity]}">{escape(one.message)}</b> '
        f'<span class="id dim">{escape(one.id)}</span>'
        f'<br>{escape(one.why)}<br><span class="dim">{escape(one.fix)}</span></p>\n'
        for one in report.findings
    )


def _causes(report: FleetDocument) -> str:
    """Return how many hosts have which cause, and which they are."""
    groups = causes(report.hosts)
    lines = (
        f'<li>{len(names):,} x <span class="id">{escape(id_)}</span>: {escape(short(names))}</li>'
        for id_, names in groups.items()
    )
    return "<h2>Causes</h2>\n<ul>\n" + "\n".join(lines) + "\n</ul>\n" if groups else ""


def _odd(report: FleetDocument) -> str:
    """Return what differs, a line for each fact."""
    if not report.odd_ones_out:
        return ""
    lines: list[str] = []
    for drift in report.odd_ones_out:
        others = "; ".join(
            f'<span class="odd">{escape(value(odd.value))}</span> on {escape(few(odd.hosts, _NAMES_WIDTH, "…"))}'
            for odd in drift.others
        )
        most = f"; {escape(value(drift.majority))} on the other {drift.majority_hosts:,}" if drift.majority else ""
        lines.append(f"<li><b>{escape(drift.fact)}</b>: {others}{most}</li>")
    return "<h2>Odd ones out</h2>\n<ul>\n" + "\n".join(lines) + "\n</ul>\n"


def _orders(hosts: Sequence[HostDocument], columns: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """Return for each way to sort the place of each host: the page only moves rows by these numbers."""
    keys: dict[str, list[tuple[object, ...]]] = {
        "verdict": [(ORDER.index(host.verdict), host.cause.id if host.cause else "") for host in hosts],
        "host": [(host.name,) for host in hosts],
        **{fact: [(host.facts.get(fact, ""),) for host in hosts] for fact in columns},
    }
    orders: dict[str, Sequence[int]] = {}
    for name, own in keys.items():
        places = [0] * len(hosts)
        for place, index in enumerate(sorted(range(len(hosts)), key=lambda index: (own[index], index))):
            places[index] = place
        orders[name] = places
    return orders


def _sorting(orders: Mapping[str, Sequence[int]]) -> str:
    return "\n".join(f"body:has(#s{n}:checked) .host {{ order: var(--s{n}) }}" for n, _ in enumerate(orders)) + "\n"


def _filtering() -> str:
    return (
        "\n".join(f"body:not(:has(#f{n}:checked)) .host.v{n} {{ display: none }}" for n, _ in enumerate(ORDER)) + "\n"
    )


def _controls(names: Sequence[str]) -> str:
    sorts = "".join(
        f'<label><input type="radio" name="sort" id="s{n}"{" checked" if not n else ""}> {escape(name)}</label>'
        for n, name in enumerate(names)
    )
    shows = "".join(
        f'<label><input type="checkbox" id="f{n}" checked> {_WORDS[word]}</label>' for n, word in enumerate(ORDER)
    )
    return (
        f"<form><fieldset><legend>Sort by</legend>{sorts}</fieldset>"
        f"<fieldset><legend>Show</legend>{shows}</fieldset></form>"
    )


def _widths(columns: Sequence[str]) -> str:
    return "minmax(7rem, max-content) minmax(6rem, max-content) minmax(18rem, 3fr) " + "minmax(5rem, 1fr) " * len(
        columns
    )


def _head(columns: Sequence[str]) -> str:
    cells = "".join(f'<div role="columnheader">{escape(name)}</div>' for name in ("host", "verdict", "cause", *columns))
    return f'<div role="rowgroup"><div role="row">{cells}</div></div>'


def _row(
    host: HostDocument,
    index: int,
    columns: Sequence[str],
    common: Mapping[str, str],
    orders: Mapping[str, Sequence[int]],
) -> str:
    places = ";".join(f"--s{n}:{own[index]}" for n, own in enumerate(orders.values()))
    cells = "".join(f'<div role="cell">{_fact(host.facts.get(fact), common[fact])}</div>' for fact in columns)
    return (
        f'<div role="row" class="host v{ORDER.index(host.verdict)}" style="{places}">'
        f'<div role="cell"><b>{escape(host.name)}</b></div>'
        f'<div role="cell" class="{_class(host.verdict)}">{_WORDS[host.verdict]}</div>'
        f'<div role="cell">{_cause(host)}</div>{cells}</div>'
    )


def _fact(value: str | None, common: str) -> str:
    if value is None:
        return '<span class="dim">?</span>'
    return f'<span class="odd">{escape(value)}</span>' if common and value != common else escape(value)


def _cause(host: HostDocument) -> str:
    """Return the cause, which opens to all that was found."""
    if host.no_answer:
        return f'{escape(host.no_answer.reason)}<br><span class="dim">{escape(host.no_answer.do)}</span>'
    found = [finding for finding in host.report.findings if finding.severity != "info"] if host.report else []
    if found:
        first = found[0]
        head = f'<span class="id">{escape(first.id)}</span> {escape(about(first.subject, first.message))}'
        more = f' <span class="dim">+{len(found) - 1}</span>' if len(found) > 1 else ""
        return f"<details><summary>{head}{more}</summary>{''.join(map(_finding, found))}</details>"
    if host.report and host.verdict == "unknown":
        coverage = host.report.coverage
        return f"only {coverage.ran} of {coverage.of} checks could be judged"
    return ""


def _finding(finding: FindingDocument) -> str:
    seen = "\n".join(f"{one.what}: {one.value}" + (f" ({one.where})" if one.where else "") for one in finding.evidence)
    rows = (
        ("Seen", seen),
        ("Why", flowing(finding.why)),
        ("Do", flowing(finding.fix)),
        ("Blocked by it", ", ".join(finding.blocked)),
    )
    shown = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text)
    return f'<dl><dt>{escape(finding.title)} <span class="id dim">{escape(finding.id)}</span></dt>{shown}</dl>'
