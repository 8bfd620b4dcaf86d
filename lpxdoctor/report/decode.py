"""A profile in, its table for a terminal out: a line per concurrency, and why a line cannot be trusted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lpxdoctor.decode.profile import Distribution, Profile, Rung
from lpxdoctor.report.conclusions import conclusions, remarks
from lpxdoctor.report.curves import Chart, Line, beside
from lpxdoctor.report.printed import show

_HEADS = "at\nonce|TTFT\np50|\np95|TPOT\np50|\np95|tokens\n/s|of\nceiling|\nKV|client\nerror|"
_LEAST_FOR_CURVES = 3
_LEAST_WIDTH = 20
_ROOMY = 72  # columns: fewer would cut the table's numbers


@dataclass(frozen=True)
class _Signs:
    """What a UTF-8 terminal shows; an ASCII or GBK one gets plainer ones."""

    dot: str = "·"
    within: str = "±"
    wrong: str = "✗"
    fine: str = "✓"
    about: str = "~"
    missing: str = "-"
    arrow: str = "←"
    up: str = "→"


_PLAIN = _Signs(dot="|", within="+-", wrong="X", fine="OK", arrow="<-", up=">")


def render(profile: Profile, console: Console) -> None:
    """Print the profile; the console's width decides the line breaks, its encoding the signs."""
    signs = _signs(console)
    _print(Text(headline(profile, signs.dot), "bold"), console)
    show(console, _table(profile, signs, gap=2 if console.width >= _ROOMY else 1))
    found = (Text(line, "bold" if head else "") for head, line in conclusions(profile))
    for line in (*_curves(profile, braille=signs.dot != _PLAIN.dot), *found, *_remarks(profile, signs)):
        _print(line, console)


def _print(line: Text, console: Console) -> None:
    """Print a line, wrapped to its own indent; what a server said may hold signs that the terminal has not."""
    plain = line.plain.rstrip().encode(console.encoding, "replace").decode(console.encoding)
    indent = len(plain) - len(plain.lstrip(" "))
    for part in Text(plain[indent:], line.style).wrap(console, max(_LEAST_WIDTH, console.width - indent)):
        part.rstrip()
        part.pad_left(indent)
        console.print(part, highlight=False, soft_wrap=True)


def _signs(console: Console) -> _Signs:
    usual = _Signs()
    try:
        f"{usual.dot}{usual.within}{usual.wrong}{usual.fine}{usual.arrow}{usual.up}".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _PLAIN
    return usual


def headline(profile: Profile, dot: str = "·") -> str:
    """Return what was measured, in one line."""
    version = f"vLLM {profile.engine.version}" if profile.engine.version else "engine version not told"
    length = f"{profile.input_len} in, {profile.output_len} out"
    parts = (
        profile.deployment or profile.target,
        f"{profile.model} {profile.precision or ''}".strip(),
        _gpus(profile),
        version,
        length if profile.input_exact else f"about {length}",
    )
    return f" {dot} ".join(part for part in parts if part)


def _gpus(profile: Profile) -> str:
    names = profile.gpu or ()
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _table(profile: Profile, signs: _Signs, gap: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim", collapse_padding=True)
    for name in _HEADS.split("|"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    knee = profile.knee.concurrency if profile.knee else None
    for rung in profile.rungs:
        share = rung.ceiling.share if rung.ceiling else None
        table.add_row(
            f"{rung.concurrency}",
            _ms(rung.ttft_ms, "p50", signs),
            _ms(rung.ttft_ms, "p95", signs),
            _ms(rung.tpot_ms, "p50", signs),
            _ms(rung.tpot_ms, "p95", signs),
            _number(rung.output_tokens_per_s, signs),
            signs.missing if share is None else f"{share:.0%}",
            _cache(rung, signs),
            _share(rung.client.worst_share, signs) + ("" if rung.valid else f" {signs.wrong}"),
            f"{signs.arrow} knee" if rung.concurrency == knee else "",
            style="" if rung.valid else "yellow",
        )
    return table


def _cache(rung: Rung, signs: _Signs) -> str:
    """Return the fullest that the KV cache was; by arithmetic where the engine does not tell."""
    share = rung.load.kv_cache_max if rung.load else None
    share = rung.kv_cache_share if share is None else share
    return signs.missing if share is None else f"{share:.0%}"


def _curves(profile: Profile, *, braille: bool) -> Iterator[Text]:
    """Yield the curves of a ladder; dots are the 95th percentile."""
    rungs = [rung for rung in profile.rungs if rung.requests] if profile.ladder else []
    if len(rungs) < _LEAST_FOR_CURVES:
        return
    mark = profile.knee.concurrency if profile.knee else None
    mark = mark if mark in [rung.concurrency for rung in rungs] else None

    def line(of: Callable[[Rung], float | None], *, dotted: bool = False) -> Line:
        points = [(float(rung.concurrency), value) for rung in rungs if (value := of(rung)) is not None]
        return Line(tuple(points), dotted)

    charts = (
        Chart("tokens/s", (line(lambda rung: rung.output_tokens_per_s),), mark),
        Chart("TPOT p50, p95, ms", (line(lambda r: r.tpot_ms.p50), line(lambda r: r.tpot_ms.p95, dotted=True)), mark),
        Chart("TTFT p50, p95, ms", (line(lambda r: r.ttft_ms.p50), line(lambda r: r.ttft_ms.p95, dotted=True)), mark),
    )
    yield Text("")
    yield from (Text(row, "cyan") for row in beside(charts, braille=braille))
    yield Text("")


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
    for kind, line in remarks(profile):
        sign = {"wrong": f"{signs.wrong} ", "fine": f"{signs.fine} ", "more": "    ", "note": "  "}.get(kind, "")
        yield Text(sign + line, {"wrong": "yellow", "more": "yellow", "fine": "green", "dim": "dim"}.get(kind, ""))
    if any("p95" in rung.ttft_ms.too_few_for for rung in profile.rungs):
        yield Text(f"{signs.about} from fewer than 20 requests: more with --requests", "dim")
