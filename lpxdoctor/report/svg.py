"""Series over concurrency in, an SVG chart out that follows the page's light or dark colours."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 34
_STEPS = (1, 2, 2.5, 5, 10)

STYLE = """
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; fill: var(--dim) }
svg .grid { stroke: var(--line) } svg .head { font-weight: 600; font-size: 13px; fill: var(--text) }
svg .s0 { stroke: var(--one); fill: var(--one) } svg .s1 { stroke: var(--two); fill: var(--two) }
svg polyline { fill: none !important; stroke-width: 2 } svg .s1 polyline { stroke-dasharray: 5 3 }
svg .open { fill: var(--page) } svg .whisker { stroke-width: 1; opacity: .7 }
svg .knee { stroke: var(--warning); stroke-dasharray: 2 3 } svg .knee-text { fill: var(--warning) }
svg .target { stroke: var(--failed); stroke-dasharray: 8 4 } svg .target-text { fill: var(--failed) }
"""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One rung's value with its interval, an end None where it is open; sure: it can be compared."""

    x: int
    y: float
    low: float | None = None
    high: float | None = None
    sure: bool = True


@dataclass(frozen=True)
class Series:
    """A named line."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What one chart shows; knee and target are None where there is none."""

    title: str
    unit: str
    series: tuple[Series, ...]
    knee: tuple[int, str] | None = None
    target: float | None = None


class _Scale:
    """Places values: concurrency by its powers of two, values from 0 up to a round number."""

    def __init__(self, xs: Sequence[int], top: float) -> None:
        self.xs = xs
        self.low = math.log2(xs[0])
        self.span = (math.log2(xs[-1]) - self.low) or 1.0
        rough = top / 4 or 1.0
        power: float = 10.0 ** math.floor(math.log10(rough))
        self.step = next(step * power for step in _STEPS if step * power >= rough * 0.999)
        self.top = self.step * math.ceil(top / self.step * 0.999)

    def x(self, value: float) -> float:
        return _LEFT + 8 + (math.log2(value) - self.low) / self.span * (_WIDTH - _LEFT - _RIGHT - 20)

    def y(self, value: float) -> float:
        return _TOP + (1 - min(value, self.top) / self.top) * (_HEIGHT - _TOP - _BOTTOM)


def draw(chart: Chart) -> str:
    """Return the chart, "" when it has no points."""
    points = [point for series in chart.series for point in series.points]
    if not points:
        return ""
    highest = max(max(point.y, point.high or 0.0) for point in points)
    scale = _Scale(sorted({point.x for point in points}), max(highest, chart.target or 0.0))
    body = "\n".join((*_axes(chart, scale), *_marks(chart, scale), *_lines(chart, scale)))
    label = escape(f"{chart.title} over requests at once")
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">\n{body}\n</svg>'


def _axes(chart: Chart, scale: _Scale) -> Iterator[str]:
    yield f'<text class="head" x="{_LEFT}" y="14">{escape(chart.title)}</text>'
    for number in range(round(scale.top / scale.step) + 1):
        value, at = number * scale.step, scale.y(number * scale.step)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{value:,g}</text>'
    for value in scale.xs:
        yield f'<text x="{scale.x(value):.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{value}</text>'
    yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 3}" text-anchor="end">requests at once</text>'
    names = "; dashed: ".join(series.name for series in chart.series)
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 3}">{escape(names)}</text>'


def _marks(chart: Chart, scale: _Scale) -> Iterator[str]:
    if chart.knee and scale.xs[0] <= chart.knee[0] <= scale.xs[-1]:
        at = scale.x(chart.knee[0])
        yield f'<line class="knee" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
        side, by = ("end", at - 4) if at > _WIDTH / 2 else ("start", at + 4)
        where = f'x="{by:.1f}" y="{_TOP + 11}" text-anchor="{side}"'
        yield f'<text class="knee-text" {where}>knee: {escape(chart.knee[1])}</text>'
    if chart.target is not None:
        at = scale.y(chart.target)
        yield f'<line class="target" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="target-text" x="{_LEFT + 4}" y="{at + 12:.1f}">target {chart.target:g} {chart.unit}</text>'


def _lines(chart: Chart, scale: _Scale) -> Iterator[str]:
    for number, series in enumerate(chart.series):
        path = " ".join(f"{scale.x(point.x):.1f},{scale.y(point.y):.1f}" for point in series.points)
        yield f'<g class="s{number}"><polyline points="{path}"/>'
        for point in series.points:
            x, y = scale.x(point.x), scale.y(point.y)
            if point.low is not None and point.high is not None:
                ends = f'y1="{scale.y(point.low):.1f}" y2="{scale.y(point.high):.1f}"'
                yield f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'
            shape = "" if point.sure else ' class="open"'
            told = f"{point.x} at once: {series.name} {point.y:,.4g} {chart.unit}"
            yield f'<circle{shape} cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escape(told)}</title></circle>'
        yield "</g>"
