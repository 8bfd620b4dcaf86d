"""A profile in, its table for a terminal out: a line per concurrency, and why a line cannot be trusted."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lpxdoctor.decode.profile import Distribution, Profile, Rung

_COLUMNS = ("at once", "TTFT p50", "p95", "TPOT p50", "p95", "tokens/s", "req/s", "KV", "client error")


@dataclass(frozen=True)
class _Signs:
    """What a UTF-8 terminal shows; an ASCII or GBK one gets plainer ones."""

    dot: str = "·"
    within: str = "±"
    wrong: str = "✗"
    fine: str = "✓"
    about: str = "~"
    missing: str = "-"


_PLAIN = _Signs(dot="|", within="+-", wrong="X", fine="OK")


def render(profile: Profile, console: Console) -> None:
    """Print the profile; the console's width decides the line breaks, its encoding the signs."""
    signs = _signs(console)
    _print(Text(_headline(profile, signs), "bold"), console)
    console.print(_table(profile.rungs, signs), highlight=False)
    for line in _remarks(profile, signs):
        _print(line, console)


def _print(line: Text, console: Console) -> None:
    """Print a line; what a server said may hold signs that the terminal has not."""
    line.plain = line.plain.encode(console.encoding, "replace").decode(console.encoding)
    console.print(line, highlight=False)


def _signs(console: Console) -> _Signs:
    usual = _Signs()
    try:
        f"{usual.dot}{usual.within}{usual.wrong}{usual.fine}".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _PLAIN
    return usual


def _headline(profile: Profile, signs: _Signs) -> str:
    version = f"vLLM {profile.engine.version}" if profile.engine.version else "engine version not told"
    length = f"{profile.input_len} in, {profile.output_len} out"
    parts = (
        profile.deployment or profile.target,
        f"{profile.model} {profile.precision or ''}".strip(),
        _gpus(profile),
        version,
        length if profile.input_exact else f"about {length}",
    )
    return f" {signs.dot} ".join(part for part in parts if part)


def _gpus(profile: Profile) -> str:
    names = profile.gpu or ()
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _table(rungs: tuple[Rung, ...], signs: _Signs) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", collapse_padding=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=name != "client error")
    for rung in rungs:
        client = rung.client.worst_share
        table.add_row(
            f"{rung.concurrency}",
            _ms(rung.ttft_ms, "p50", signs),
            _ms(rung.ttft_ms, "p95", signs),
            _ms(rung.tpot_ms, "p50", signs),
            _ms(rung.tpot_ms, "p95", signs),
            _number(rung.output_tokens_per_s, signs),
            _number(rung.requests_per_s, signs),
            signs.missing if rung.kv_cache_share is None else f"{rung.kv_cache_share:.0%}",
            _share(client, signs) + ("" if rung.valid else f" {signs.wrong}"),
            style="" if rung.valid else "yellow",
        )
    return table


def _share(bound: float | None, signs: _Signs) -> str:
    if bound is None:
        return signs.missing
    return f"{signs.within}{bound:.1%}" if bound < 1 else ">100%"


def _ms(metric: Distribution, name: str, signs: _Signs) -> str:
    value: float | None = getattr(metric, name)
    if value is None:
        return signs.missing
    return (signs.about if name in metric.too_few_for else "") + _digits(value)


def _number(value: float | None, signs: _Signs) -> str:
    return signs.missing if value is None else _digits(value)


def _digits(value: float) -> str:
    """Write three digits or all before the point: 4.68, 74.2, 18,600."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _remarks(profile: Profile, signs: _Signs) -> Iterator[Text]:
    yield Text(f"Milliseconds; measured {profile.reached}, by {_clock(profile)}.", "dim")
    for rung in profile.rungs:
        if rung.invalid_because:
            yield Text(f"{signs.wrong} {rung.concurrency} at once: {rung.invalid_because}", "yellow")
        for kind, example in rung.error_examples.items():
            yield Text(f"    {rung.errors_by_kind.get(kind, 0)} x {example}", "yellow")
        for note in rung.notes:
            yield Text(f"  {rung.concurrency} at once: {note}")
    few = [rung.concurrency for rung in profile.rungs if "p95" in rung.ttft_ms.too_few_for]
    if few:
        yield Text(f"{signs.about} from fewer than 20 requests: more with --requests", "dim")
    if profile.interrupted:
        yield Text("Interrupted: this is what was measured until then.", "yellow")
    elif profile.is_valid:
        yield Text(f"{signs.fine} Every line can be compared: no errors, {_surroundings(profile)}.", "green")


def _surroundings(profile: Profile) -> str:
    """Say what was seen besides the requests, and what could not be."""
    rates = [rung.engine.prefix_cache_hit_rate if rung.engine else None for rung in profile.rungs]
    known = [rate for rate in rates if rate is not None]
    told = len(known) == len(rates)
    cache = f"prefix-cache hits {max(known):.1%} at most" if told else "prefix-cache hits not told by the server"
    gpus = "no GPU slowed down" if profile.gpu else f"GPUs not sampled ({profile.unknown.get('gpu')})"
    return f"{cache}, {gpus}"


def _clock(profile: Profile) -> str:
    kernel = all(rung.client.clock == "kernel" for rung in profile.rungs)
    return "the kernel's receive times" if kernel else "this program's clock, which is later than the arrival"
