"""A plan in, its text for a terminal out."""

import shlex
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lpxdoctor.report.printed import show
from lpxdoctor.sizing.card import GIB, MIB, told
from lpxdoctor.sizing.options import Option
from lpxdoctor.sizing.plan import Plan

_BAR_WIDTH = 77
_SECOND_LINE = "KV "
_SIGNS = {"times": "×", "dot": "·", "about": "≈", "blocks": "█▓▒▚░ ", "fail": "✗", "divide": "÷", "up": "→"}
_ASCII = {"times": "x", "dot": "-", "about": "~", "blocks": "#=+:. ", "fail": "X", "divide": "/", "up": ">"}
_STYLES = ("cyan", "yellow", "magenta", "blue", "green", "dim")


def render(plan: Plan, console: Console) -> None:
    """Print the plan; the console's encoding decides the signs."""
    signs = _signs(console)
    show(console, *_blocks(plan, signs, min(console.width - 1, _BAR_WIDTH)))
    if plan.fits:  # on one line, to be copied
        console.print(Text(_command(plan), "bold"), highlight=False, soft_wrap=True)


def _signs(console: Console) -> dict[str, str]:
    try:
        "".join(_SIGNS.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _SIGNS


def _blocks(plan: Plan, signs: dict[str, str], width: int) -> Iterator[RenderableType]:
    """Yield the text from top to bottom."""
    yield Text(_headline(plan), "bold")
    yield Text(_held(plan), "dim")
    if plan.refusal:
        yield ""
        yield Text(f"{signs['fail']} {plan.refusal}", "bold red")
        yield from (Text(f"  {signs['up']} {way}") for way in plan.ways_out)
        if not plan.ways_out:
            yield Text(f"  {signs['up']} nothing on this GPU: a smaller model, or a larger GPU")
    yield ""
    yield _table(plan)
    yield ""
    if plan.chosen.budget.room > 0:
        yield from _bar(plan, signs, width)
        yield ""
    yield from (Text(line, "dim") for line in _advice(plan, signs))
    if plan.fits:
        yield ""
        yield _arguments(plan)
        yield ""


def _headline(plan: Plan) -> str:
    card, count = plan.card, plan.wish.tensor_parallel
    each = [told(card.total_bytes)]
    if card.bytes_per_s:
        each.append(f"{card.bytes_per_s / 1e9:,.0f} GB/s")
    each.append(f"compute capability {card.capability}")
    gpu = f"{count} x {card.name}" if count > 1 else card.name
    return f"{plan.model.name} on {gpu} ({', '.join(each)})"


def _held(plan: Plan) -> str:
    card = plan.card
    if card.free_bytes is None:
        return "as in the table of GPUs; what others hold is seen on the host, or with --from"
    held = max(card.total_bytes - card.free_bytes, 0)
    who = ", ".join(card.holders) if card.holders else "no process is shown"
    place = f"GPU {card.index}" + (f", the emptiest of {card.alike}" if card.alike > plan.wish.tensor_parallel else "")
    return f"{place}: " + (f"held by others now: {told(held)}: {who}" if held >= MIB else "all of it is free")


def _table(plan: Plan) -> Table:
    """Return a column for each precision, the chosen one in bold."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for option in plan.options:
        table.add_column(_column(option), justify="right", style="bold" if option is plan.chosen else "")
    context = f"{plan.wish.context:,}"
    rows: list[tuple[str, list[str]]] = [
        ("computed in", [option.precision.name if option.native else "16 bit" for option in plan.options]),
        ("weights", [told(option.budget.weights) for option in plan.options]),
        ("KV room", [told(option.budget.room) if option.budget.room > 0 else "none" for option in plan.options]),
        ("KV tokens", [f"{option.tokens:,}" for option in plan.options]),
        (f"requests of {context} at once", [f"{option.max_concurrency:,}" for option in plan.options]),
        (_longest_label(plan), [f"{option.longest:,}" for option in plan.options]),
    ]
    if rate := plan.card.bytes_per_s:
        rows.append(("ceiling, 1 stream", [_rate(o.steps[0].tokens_per_s(rate)) for o in plan.options]))
        full = [_rate(o.steps[2].tokens_per_s(rate)) if o.max_concurrency else "-" for o in plan.options]
        rows.append(("ceiling, all of these", full))
    for label, cells in rows:
        table.add_row(label, *cells)
    return table


def _column(option: Option) -> str:
    return option.precision.name + ("*" if option.precision.checkpoint and not option.stored else "")


def _longest_label(plan: Plan) -> str:
    wanted = plan.wish.concurrency
    return f"longest context, {wanted:,} at once" if wanted else "longest context, one request"


def _bar(plan: Plan, signs: dict[str, str], width: int) -> Iterator[RenderableType]:
    """Yield the GPU's memory as a bar, and what its pieces are."""
    memory, about = plan.chosen.budget, signs["about"]
    pieces = (
        ("weights ", memory.weights),
        (f"step {about}", memory.activations),
        (f"graphs {about}", memory.graphs),
        (f"process {about}", memory.runtime),
        (_SECOND_LINE, memory.room),
        ("left ", memory.total - memory.requested),
    )
    bar, legend, end = Text(), Text("GiB"), 0
    for (label, size), block, style in zip(pieces, signs["blocks"], _STYLES, strict=True):
        start = round(end / memory.total * width)
        end += size
        bar.append(block * (round(end / memory.total * width) - start), style)
        legend.append("\n   " if label == _SECOND_LINE else "")  # two lines of whole pieces on 80 columns
        legend.append(f" {block} ", style).append(f"{label}{size / GIB:.1f}")
    yield bar.append("|")
    yield legend


def _advice(plan: Plan, signs: dict[str, str]) -> Iterator[str]:
    """Yield what to try next, and what was assumed."""
    others = [option for option in plan.options if option is not plan.chosen]
    for option in others:
        gain, name = plan.chosen.steps[0].bytes / option.steps[0].bytes, option.precision.name
        if option.fits and option.native and not option.precision.checkpoint and gain > 1:
            yield f"Next: {name}, {gain:.1f}{signs['times']} the ceiling, with no other checkpoint: --precision {name}"
    needs = [f"{o.precision.name} {o.precision.checkpoint}" for o in others if o.precision.checkpoint]
    if needs:
        yield f"* from a checkpoint of its own: {', '.join(needs)}"
    if others:
        yield "Quantization is not always faster and changes answers: measure on this GPU."
    for form, tokens in plan.kv_tokens:
        times = f"{tokens / max(plan.chosen.tokens, 1):.1f}{signs['times']}"
        yield f"--kv-cache-dtype {form}: {times} the KV tokens, {tokens:,}; it changes answers, too"
    if plan.card.bytes_per_s:
        bandwidth = f"the GPU's bandwidth ({plan.card.bandwidth_from})"
        yield f"Ceiling: {bandwidth} {signs['divide']} the bytes that a decode step reads"
    yield from (f"Note: {note}" for note in plan.notes)


def _arguments(plan: Plan) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for argument in plan.arguments:
        table.add_row(Text(f"{argument.flag} {argument.value}"), Text(argument.reason, "dim"))
    return table


def _command(plan: Plan) -> str:
    words = ["vllm", "serve", plan.model.served]
    words += [word for argument in plan.arguments for word in (argument.flag, argument.value)]
    return shlex.join(words)


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}/s" if tokens_per_s >= 100 else f"{tokens_per_s:.1f}/s"
