"""A tuning run in, its table for a terminal and its JSON out: a line a step, the chosen arguments last."""

import math
import shlex
from collections.abc import Iterator
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lpxdoctor.report.encoding import pretty
from lpxdoctor.report.printed import show
from lpxdoctor.report.signs import shown
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy
from lpxdoctor.tune.judge import rates
from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.state import Confirmation, Row, State

_STYLES = {
    kept.KEPT: "green",
    kept.AGAIN: "dim",
    **dict.fromkeys((kept.NOT_STARTED, kept.INACCURATE, kept.UNJUDGED, kept.NOT_CONFIRMED), "yellow"),
}
_PLAIN = str.maketrans({"→": ">", "±": "~", "✓": "+", "·": "|"})  # for a terminal without these signs


def render(state: State, console: Console) -> None:
    """Print the run; the console's width decides the line breaks, its encoding the signs."""
    show(console, _table(state, console))
    for line in _remarks(state):
        line.plain = shown(line.plain, console, _PLAIN)
        show(console, line)


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
        outcome = "" if row.outcome == kept.FOUND else row.outcome
        told = (row.told or "as found", *cells, _gain(row), _drift(row.accuracy), outcome)
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
        if row.outcome not in (kept.SKIPPED, kept.NOT_TRIED) and row.why:
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
        least, most = (max(1, math.ceil(seconds / 60)) for seconds in state.lasts_s)
        rest = f"goes on from here; {most} should last for all that is left" if most > least else "finishes it"
        took = f"a start took up to {state.longest_s / 60:.1f} min"
        yield Text(
            f"The budget lasts for no more: {took}. The command with --resume and --budget {least} or more {rest}.",
            "yellow",
        )
    yield from _chosen(state)


def _chosen(state: State) -> Iterator[Text]:
    last, best = state.confirmation, state.settings()
    if state.is_open:
        yield Text("Kept so far, and not confirmed yet: --resume measures it once more beside the engine as found.")
        yield from _typed(best)
    elif last is None or (not last.holds and best == Settings()):
        yield from _nothing(state)
    else:
        gains = ", ".join(f"{1 + gain:.2f} times at {one}" for one, gain in sorted(last.gains.items()))
        yield Text(f"✓ Faster, in tokens/s: {gains}.", "bold green")
        over_all = f"{last.gain or 0:+.1%} ± {last.within or 0:.1%} over all"
        yield Text(f"  confirmed: {over_all}, between two measurements of the engine as found", "dim")
        yield from _typed(best)


def _nothing(state: State) -> Iterator[Text]:
    last = state.confirmation
    if last is not None:
        told = Row(step="", added=last.added, removed=last.removed, outcome="").told
        seen = "" if last.gain is None else f" ({last.gain:+.1%} ± {last.within or 0:.1%} over all)"
        yield Text(f"Not confirmed: {told}{seen}: {last.why}.", "yellow")
        yield Text("The machine changed meanwhile, or it was luck: leave the engine as it is.", "bold")
        return
    judged = any(row.outcome in (kept.NO_GAIN, kept.NOT_CONFIRMED, kept.INACCURATE) for row in state.rows)
    why = "was faster beyond noise" if judged else "could be judged"
    yield Text(f"Nothing that was tried {why}: leave the engine as it is.", "bold")


def _typed(best: Settings) -> Iterator[Text]:
    if best.added:
        yield Text(f"  add     {shlex.join(best.added)}")
    if best.removed:
        yield Text(f"  remove  {' '.join(best.removed)}")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A run: what to add to the engine's arguments and to remove; gain: requests at once -> share of tokens/s.

    These are confirmed, and empty without that; unconfirmed is what was kept where the budget or Ctrl-C came before.
    """

    schema: Literal[1] = 1
    ended: str  # "finished", "out of budget" or "interrupted"
    arguments: tuple[str, ...]
    remove: tuple[str, ...]
    gain: dict[int, float]
    confirmation: Confirmation | None
    unconfirmed: Settings | None
    profile: str  # the file of the best settings' profile
    steps: tuple[Row, ...]


def to_json(state: State, profile: str) -> str:
    """Return the run as JSON text; profile is the file of the best settings' profile."""
    best, last = state.chosen, state.confirmation
    document = Document(
        ended=state.ended or "interrupted",
        arguments=best.added,
        remove=best.removed,
        gain=dict(last.gains) if last and best != Settings() else {},
        confirmation=last,
        unconfirmed=state.settings() if state.is_open else None,
        profile=profile,
        steps=state.rows,
    )
    return pretty(document)
