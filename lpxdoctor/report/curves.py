"""Lines of points in, small charts side by side in a terminal's signs out: braille dots, or stars in plain ASCII."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

_ROWS, _COLUMNS, _GAP = 6, 17, 2
# Bits of the dots of U+2800 by row and column of its cell.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


@dataclass(frozen=True)
class Line:
    """(x, y) from left to right; a dotted one gets every third dot."""

    points: tuple[tuple[float, float], ...]
    dotted: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over concurrency, which is drawn by its powers of two; mark is the concurrency of a knee: ^ below it."""

    title: str
    lines: tuple[Line, ...]
    mark: int | None = None


def beside(charts: Sequence[Chart], *, braille: bool) -> list[str]:
    """Return the rows of charts that stand next to each other, 26 signs each; charts without points are left out."""
    drawn = [_drawn(chart, braille=braille) for chart in charts if any(len(line.points) > 1 for line in chart.lines)]
    width = max((len(row) for rows in drawn for row in rows), default=0)
    return [(" " * _GAP).join(row.ljust(width) for row in rows).rstrip() for rows in zip_longest(*drawn, fillvalue="")]


def _drawn(chart: Chart, *, braille: bool) -> list[str]:
    high = max(y for line in chart.lines for _, y in line.points) or 1.0
    xs = [x for line in chart.lines for x, _ in line.points]
    first, last = math.log2(min(xs)), math.log2(max(xs))
    down, across = (4, 2) if braille else (1, 1)
    rows, columns = _ROWS * down, _COLUMNS * across

    def place(x: float, y: float) -> tuple[float, float]:
        return (math.log2(x) - first) / (last - first) * (columns - 1), (1 - y / high) * (rows - 1)

    dots: set[tuple[int, int]] = set()
    for line in chart.lines:
        for one, two in pairwise(place(*point) for point in line.points):
            dots.update(_between(one, two, every=3 if line.dotted else 1))
    cells = [[0] * _COLUMNS for _ in range(_ROWS)]
    for column, row in dots:
        cells[row // down][column // across] |= _BITS[row % 4][column % 2] if braille else 1
    signs = [["".join(chr(0x2800 + bits) if braille else " *"[bits] for bits in line)] for line in cells]
    labels = [_short(high), *[""] * (_ROWS - 2), "0"]
    body = [f"{label:>6} {row[0]}" for label, row in zip(labels, signs, strict=True)]
    ends = f"{min(xs):g}".ljust(_COLUMNS - len(f"{max(xs):g}")) + f"{max(xs):g}"
    below = [f"{'':6} {ends}"]
    if chart.mark is not None:
        below.append(f"{'':7}" + " " * round((math.log2(chart.mark) - first) / (last - first) * (_COLUMNS - 1)) + "^")
    return [f"{'':6} {chart.title}", *body, *below]


def _between(one: tuple[float, float], two: tuple[float, float], every: int) -> list[tuple[int, int]]:
    steps = max(1, round(max(abs(two[0] - one[0]), abs(two[1] - one[1]))))
    parts = range(0, steps + 1, every)
    return [
        (round(one[0] + (two[0] - one[0]) * n / steps), round(one[1] + (two[1] - one[1]) * n / steps)) for n in parts
    ]


def _short(value: float) -> str:
    return f"{value / 1000:.0f}k" if value >= 9999.5 else f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
