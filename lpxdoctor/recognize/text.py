"""An excerpt's raw lines in; the same lines to show, and to search in without colours, quoting and translation, out."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lpxdoctor.check import Seen
from lpxdoctor.recognize.bare import bare
from lpxdoctor.recognize.condense import Excerpt
from lpxdoctor.recognize.languages import english

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
# What mail and chat put before a line, and docker compose the name of a service.
_QUOTED = re.compile(r"^(?:[>│┃]\s?)+|^[\w.-]{1,40}\s*\|\s(?=\S)(?![|+])")
# Typographic quotes and full-width signs, as chats and Chinese keyboards write them.
_TYPOGRAPHIC = "\u2018\u2019\u201c\u201d\uff1a\uff08\uff09\uff0c\uff1b\u3002\uff1d\u3000\u3010\u3011"
# Spaces of web pages and word processors, and what stands between characters unseen.
_SPACES = {ord(space): " " for space in "\xa0\u2000\u2002\u2003\u2007\u2009\u202f"} | dict.fromkeys(
    map(ord, "\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
)
_DASHES = re.compile(r"(?<=\s)[\u2013\u2014](?=[a-z])")  # what chats make of the two dashes of an option
_LONG_BYTES, _LONG_LINES = 1024, 200
_SEEN_CHARS = 240
_PLAIN = str.maketrans(_TYPOGRAPHIC, "''\"\":(),;.= []")


@dataclass(frozen=True)
class Pasted:
    """A text in lines: as shown, as searched in, the same without what stands before each, and their numbers."""

    shown: tuple[str, ...]
    searched: tuple[str, ...]
    bare: tuple[str, ...]
    numbers: tuple[int, ...]
    total_lines: int
    whole: bool
    binary: bool = False

    @cached_property
    def text(self) -> str:
        """The bare lines to search in, as one text."""
        return "\n".join(self.bare) + "\n"

    def seen(self, index: int, note: str = "") -> Seen:
        """Return a line as what was seen: its number, and the line as it is shown, cut where it is long."""
        shown = self.shown[index].strip()
        return Seen(f"line {self.numbers[index]:,}", shown[:_SEEN_CHARS] + ("…" if shown[_SEEN_CHARS:] else ""), note)


def pasted(excerpt: Excerpt) -> Pasted:
    """Return the text of an excerpt."""
    rows = [(number, line) for number, raw in _shortened(excerpt.lines) for line in _lines(_decoded(raw))]
    shown = tuple(line for _, line in rows)
    return Pasted(
        shown=shown,
        searched=english(map(_plain, shown)),
        bare=english(map(_plain, bare(shown))),
        numbers=tuple(number for number, _ in rows),
        total_lines=excerpt.total_lines,
        whole=excerpt.whole,
        binary=excerpt.binary,
    )


def _shortened(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield lines, the long ones after the first hundreds cut: a text of nothing else is no log, and slow to search."""
    long = 0
    for number, raw in lines:
        long += len(raw) > _LONG_BYTES
        yield number, raw if long < _LONG_LINES else raw[:_LONG_BYTES]


def _decoded(raw: bytes) -> str:
    """Return a line's text: UTF-8, else what Chinese Windows writes, in which every byte means something."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("gb18030", "replace")


def _lines(line: str) -> Iterator[str]:
    """Yield the lines in a line: a log in JSON, or an error that holds another, writes their ends as escapes."""
    line = _ESCAPES.sub("", line if line.isascii() else line.translate(_SPACES))
    parts = re.split(r"\r(?!$)|(?<!\\)\\n(?![a-z]:\\)", line) if "\r" in line or "\\n" in line else [line]
    for part in parts:
        if part.strip() or len(parts) == 1:
            yield _QUOTED.sub("", part.rstrip("\r"))


def _plain(line: str) -> str:
    """Return a line with plain quotes and signs."""
    line = line.replace('\\"', '"').replace("\\t", "\t")
    return line if line.isascii() else _DASHES.sub("--", line.translate(_PLAIN))
