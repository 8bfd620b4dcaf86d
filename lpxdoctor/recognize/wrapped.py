"""A pasted text whose lines a terminal or a mail broke in; the same text with its lines made whole again, out."""

import re
from collections.abc import Callable, Iterator, Sequence

from lpxdoctor.recognize.text import Pasted

_MOST_LINES = 2000
_NARROWEST, _WIDEST = 30, 250
_OWN_START = 6  # characters that a line and the next have in common where the next is a line of its own, and
_WORD_END = re.compile(r"(?<=\S)[\s:]")  # all of its first word, for a name may be broken in two that begin alike
# As tables, prompts, listings and the last lines of tracebacks begin.
_BEGINS = re.compile(r"\s*(?:[|+$#>]|ii\s|GPU \d|[\w.]+(?:Error|Exception)\b|-{3}|={3})")

# What is put between a line and the next to make them one; None where they are two.
Seam = str | None


def whole(pasted: Pasted) -> Iterator[Pasted]:
    """Yield the text with its lines made whole, as a terminal breaks them and as a mail does, where any can be."""
    width = max(map(len, pasted.shown), default=0)
    if len(pasted.shown) > _MOST_LINES or not _NARROWEST <= width <= _WIDEST:
        return
    for between in (_broken_anywhere, _broken_between_words):
        seams = _seams(pasted, width, between)
        if any(seam is not None for seam in seams):
            yield _joined(pasted, seams)


def _broken_anywhere(line: str, after: str, width: int) -> Seam:
    if len(line) == width:
        return ""
    return " " if len(line) == width - 1 and not after.startswith(" ") else None


def _broken_between_words(line: str, after: str, width: int) -> Seam:
    return " " if len(line) + 1 + len(after.lstrip(" ").partition(" ")[0]) > width else None


def _seams(pasted: Pasted, width: int, between: Callable[[str, str, int], Seam]) -> list[Seam]:
    """Return for each line whether the next goes on with it."""
    seams: list[Seam] = []
    following = zip(*((*lines[1:], "") for lines in (pasted.shown, pasted.searched, pasted.bare)), strict=True)
    for line, (after, searched, bare) in zip(pasted.shown, following, strict=True):
        stamped = searched[:_OWN_START] != bare[:_OWN_START]
        alike = line[:_OWN_START] == after[:_OWN_START] and _first_word(line) == _first_word(after)
        own = not after.strip() or stamped or alike or _BEGINS.match(after)
        seams.append(None if own else between(line, after, width))
    return seams


def _first_word(line: str) -> str:
    return _WORD_END.split(line, 1)[0]


def _joined(pasted: Pasted, seams: Sequence[Seam]) -> Pasted:
    first = [0, *(index + 1 for index, seam in enumerate(seams[:-1]) if seam is None)]
    rows = list(zip(first, (*first[1:], len(seams)), strict=True))

    def part(lines: Sequence[str], at: int, begin: int) -> str:
        line = lines[at].lstrip(" ") if at > begin and seams[at - 1] else lines[at]  # indented, as a list goes on
        return line + (seams[at] or "")

    def one(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple("".join(part(lines, at, begin) for at in range(begin, end)) for begin, end in rows)

    return Pasted(
        shown=one(pasted.shown),
        searched=one(pasted.searched),
        bare=one(pasted.bare),
        numbers=tuple(pasted.numbers[begin] for begin in first),
        total_lines=pasted.total_lines,
        whole=pasted.whole,
    )
