"""Blocks of a report in; they stand on the terminal, without the spaces that fill a table's lines, out."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text


def show(console: Console, *blocks: RenderableType) -> None:
    """Print blocks, one below the other: a backslash at a line's end, as of a long command, has nothing behind it."""
    for block in blocks:
        console.print(_Trimmed(Text(block) if isinstance(block, str) else block), highlight=False)


class _Trimmed:
    def __init__(self, block: RenderableType) -> None:
        self.block = block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.block, options, pad=False):
            yield from _trimmed(line)
            yield Segment.line()


def _trimmed(line: Iterable[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept
