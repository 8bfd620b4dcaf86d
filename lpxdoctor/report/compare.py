"""A comparison in, its text for a terminal out: what differs first, then a line per concurrency."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lpxdoctor.decode.advice import advice, warnings
from lpxdoctor.decode.compare import Compared, Comparison, Verdict
from lpxdoctor.decode.profile import Profile
from lpxdoctor.decode.resample import Change
from lpxdoctor.report.printed import show
from lpxdoctor.report.signs import shown

_NAMES = {"tokens_per_s": "tokens/s", "tpot": "TPOT", "ttft": "TTFT"}
_PLAIN = str.maketrans({"→": ">", "±": "~", "✗": "X", "✓": "+", "·": "|"})  # for a terminal without these signs


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison; the console's width decides the line breaks, its encoding the signs."""
    for line in _before(comparison):
        _print(line, console)
    if comparison.overall:
        show(console, _table(comparison, console))
    for line in _after(comparison):
        _print(line, console)


def _print(line: Text, console: Console) -> None:
    line.plain = shown(line.plain, console, _PLAIN)
    show(console, line)


def _before(comparison: Comparison) -> Iterator[Text]:
    yield Text(f"{_told(comparison.a)} → {_told(comparison.b)}", "bold")
    yield from (Text(line, "yellow") for line in warnings(comparison))
    differing = comparison.setups.differing
    if len(differing) > 1:
        yield Text(f"{len(differing)} variables differ, so no verdict here can name the cause:", "yellow")
    elif differing:
        yield Text("One variable differs:")
    else:
        yield Text("The same set-up, as far as both know it.")
    width = max((len(one.name) for one in differing), default=0)
    for one in differing:
        yield Text(f"  {one.name:{width}}  {one.a} → {one.b}")
    if comparison.setups.unknown:
        yield Text(f"Known on one side only: {', '.join(comparison.setups.unknown)}.", "dim")


def _told(profile: Profile) -> str:
    named = f"{profile.name} ({profile.id})" if profile.name else profile.id
    return f"{named} of {profile.started[:16].replace('T', ' ')}"


def _table(comparison: Comparison, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    for name in ("at once", "tokens/s", "±noise", "TPOT ms", "", "TTFT ms", ""):
        table.add_column(shown(name, console, _PLAIN), justify="right", no_wrap=True)
    together = comparison.overall
    rows = comparison.rungs if len(comparison.rungs) < 2 or together is None else (*comparison.rungs, together)
    for row in rows:
        if row.changes:
            style = {Verdict.SLOWER: "red", Verdict.FASTER: "green"}.get(row.verdict, "")
            cells = (shown(cell, console, _PLAIN) for metric in _NAMES for cell in _cells(metric, row.changes[metric]))
            table.add_row("all" if row.concurrency is None else f"{row.concurrency}", *cells, style=style)
    return table


def _cells(metric: str, change: Change) -> tuple[str, str]:
    """Return the numbers and their change; its noise only for the first metric, for all would be too wide."""
    within = f" ±{change.within:.1%}" if metric == "tokens_per_s" else ""
    return f"{_digits(change.a)}→{_digits(change.b)}", f"{_share(metric, change)}{within}"


def _share(metric: str, change: Change) -> str:
    """Return the change of the number itself: tokens/s fall where something is slower."""
    moved = change.b / change.a - 1 if metric == "tokens_per_s" else change.slower
    return f"{moved:+.1%}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _after(comparison: Comparison) -> Iterator[Text]:
    for row in comparison.rungs:
        if row.why:
            yield Text(f"  {row.concurrency} at once: {row.why}", "yellow")
    if comparison.alone:
        listed = ", ".join(map(str, comparison.alone))
        yield Text(f"Measured in one of the two only, and not compared: {listed} at once.", "yellow")
    yield from _noise(comparison)
    yield _verdict(comparison)
    yield from (Text(f"  → {line}", "yellow") for line in advice(comparison))


def _noise(comparison: Comparison) -> Iterator[Text]:
    if comparison.overall is None:
        return
    known = comparison.noise
    between = f"{known.by_metric['tokens_per_s']:.1%} from run to run"
    how = f"measured by repeats, {known.degrees} degrees of freedom" if known.degrees else "assumed: --repeats 3 tells"
    yield Text(f"± is what noise can do, {between} ({how}) and what varied within each run.", "dim")


def _verdict(comparison: Comparison) -> Text:
    overall = comparison.overall
    if comparison.verdict is Verdict.UNJUDGED or overall is None:
        return Text(f"Not judged: {comparison.why}.", "yellow")
    if comparison.verdict is Verdict.SLOWER:
        rows = [row for row in (*comparison.rungs, overall) if row.verdict is Verdict.SLOWER]
        return Text(f"✗ Slower: {'; '.join(_worst(row) for row in rows[:3])}.", "bold red")
    rate = overall.changes["tokens_per_s"]
    so = f"tokens/s {_share('tokens_per_s', rate)} ± {rate.within:.1%} over all"
    if comparison.verdict is Verdict.FASTER:
        return Text(f"✓ Faster: {so}.", "green")
    return Text(f"✓ No difference beyond noise: {so}; {rate.detectable:.1%} slower would have been found.", "green")


def _worst(row: Compared) -> str:
    metric, change = max(row.changes.items(), key=lambda item: item[1].slower / (item[1].within or 1))
    where = "over all" if row.concurrency is None else f"at {row.concurrency}"
    values = f"{_digits(change.a)} → {_digits(change.b)}"
    return f"{where} {_NAMES[metric]} {values} ({_share(metric, change)} ± {change.within:.1%})"
