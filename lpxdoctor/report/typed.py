"""Something to do in; its lines for a terminal of any width out, in which a command can still be copied and run."""

import re
import shlex
import textwrap
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_REMARK = re.compile(r"\s+#\s+(?=\S)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PROSE = {"a", "after", "an", "and", "at", "it", "its", "of", "or", "the", "then", "to", "what", "where", "with"}
_GOES_ON = " \\"


class Typed:
    """A command, or a sentence in its place: where it is too long for a line it goes on behind a backslash."""

    def __init__(self, text: str, style: str = "bold") -> None:
        self.text = text
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in lines(self.text, options.max_width):
            yield Text(line, self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(self.text))


def is_command(text: str) -> bool:
    """Tell whether a shell would take it, by its words: what it says can be a sentence instead."""
    command = _REMARK.split(text)[0]
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not _PROSE.intersection(_QUOTED.sub("", command).lower().replace(",", " ").split())


def lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a command, its remark behind it or, where there is no room, below it."""
    if len(text) <= width or not is_command(text):
        yield text
        return
    command, *remark = _REMARK.split(text, maxsplit=1)
    line = ""
    for word in _words(command):
        if line and len(line) + 1 + len(word) > width - len(_GOES_ON):
            yield line + _GOES_ON
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    yield line
    for part in remark:
        yield from (f"  # {line}" for line in textwrap.wrap(part, max(width - 4, 1)))


def _words(command: str) -> list[str]:
    """Return a command's words as they are written; a backslash goes between any two of them, never into quotes."""
    return re.findall(r"(?:'[^']*'|\"(?:\\.|[^\"])*\"|\\.|[^\s'\"\\])+", command)
