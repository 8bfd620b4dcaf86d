"""A tuning run in, its table for a terminal and its JSON out: a line a step, the chosen arguments last."""

import shlex
from collections.abc import Iterator
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lpxdoctor.report.signs import shown
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy
from lpxdoctor.tune.search import rates
from lpxdoctor.tune.state import Row, State

_STYLES = {kept.KEPT: "green", kept.NOT_STARTED: "yellow", kept.INACCURATE: "yellow", kept.UNJUDGED: "yellow"}
_PLAIN = str.maketrans({"→": ">", "±": "~", "✓": "+", "·": "|"})  # for a terminal without these signs


def render(state: State, console: Console) -> None:
    """Print the run; the console's width decides the line breaks, its encoding the signs."""
    console.print(_table(state, console), highlight=False)
    for line in _remarks(state):
        line.plain = shown(line.plain, console, _PLAIN)
        console.print(line, highlight=False)


def _table(state: State, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    concurrencies = sorted(rates(state.first))
    table.add_column("tokens/s with", overflow="fold", min_width=20)
    for name in (*(f"at {one}" for one in concurrencies), "gain", "perplexity", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in state.rows:
        if row.outcome in (kept.SKIPPED, kept.NOT_TRIED):
            continue
        cells = [_digits(row.tokens_per_s[one]) if one in row.tokens_per_s else "" for one in concurrencies]
        told = (row.told or "as found", *cells, _gain(row), _drift(row.accuracy), row.outcome if row.told else "")
        table.add_row(*(shown(cell, console, _PLAIN) for cell in told), style=_STYLES.get(row.outcome, ""))
    return table


def _gain(row: Row) -> str:
    return "" if row.gain is None else f"{row.gain:+.1%} ±{row.within or 0:.0%}"


def _drift(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return ""
    return "not told" if accuracy.perplexity_rise is None else f"{accuracy.perplexity_rise:+.2%}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"


def _remarks(state: State) -> Iterator[Text]:
    for row in state.rows:
        if row.outcome in (kept.NOT_STARTED, kept.INACCURATE, kept.UNJUDGED, kept.NO_GAIN) and row.why:
            yield Text(f"{row.told}: {row.why}", _STYLES.get(row.outcome, ""))
        if row.log:
            yield Text(f"    what it said: {row.log}", "dim")
    left = [row for row in state.rows if row.outcome in (kept.SKIPPED, kept.NOT_TRIED)]
    if left:
        yield Text("Not tried:", "dim")
    for row in left:
        subject = f"{row.step}, {row.told}" if row.told else row.step
        yield Text(f"  {subject}: {row.why}", "dim")
    if not state.ended:
        yield Text("Interrupted: the same command with --resume goes on from here.", "yellow")
    if state.ended == kept.OUT_OF_BUDGET:
        yield Text(
            "The budget is used up: the same command with --resume has a new one, and goes on from here.", "yellow"
        )
    yield from _chosen(state)


def _chosen(state: State) -> Iterator[Text]:
    best = state.settings()
    if not best.added and not best.removed:
        judged = any(row.outcome in (kept.NO_GAIN, kept.INACCURATE) for row in state.rows)
        why = "was faster beyond noise" if judged else "could be judged"
        yield Text(f"Nothing that was tried {why}: leave the engine as it is.", "bold")
        return
    before, after = rates(state.first), rates(state.best)
    gains = (f"{after[one] / before[one]:.2f} times at {one}" for one in sorted(before) if one in after)
    yield Text(f"✓ Faster, in tokens/s: {', '.join(gains)}.", "bold green")
    if best.added:
        yield Text(f"  add     {shlex.join(best.added)}")
    if best.removed:
        yield Text(f"  remove  {' '.join(best.removed)}")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A run: what to add to the engine's arguments and to remove; gain: requests at once -> share of tokens/s."""

    schema: Literal[1] = 1
    ended: str  # "finished", "out of budget" or "interrupted"
    arguments: tuple[str, ...]
    remove: tuple[str, ...]
    gain: dict[int, float]
    profile: str  # the file of the best settings' profile
    steps: tuple[Row, ...]


def to_json(state: State, profile: str) -> str:
    """Return the run as JSON text; profile is the file of the best settings' profile."""
    best = state.settings()
    before, after = rates(state.first), rates(state.best)
    document = Document(
        ended=state.ended or "interrupted",
        arguments=best.added,
        remove=best.removed,
        gain={one: after[one] / before[one] - 1 for one in sorted(before) if one in after},
        profile=profile,
        steps=state.rows,
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
