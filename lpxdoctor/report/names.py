"""Names in, and how a report writes them out: many hosts as pdsh and Slurm read them, gpu-[001-011,013],head."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
_FIRST = 2


def short(names: Iterable[str]) -> str:
    """Return the names, those that differ only in a number of the same width put together; in their order."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        key = (match[1], len(match[2]), match[3]) if match else (name, 0, "")
        groups.setdefault(key, []).append(int(match[2]) if match else 0)
    return ",".join(_group(*key, numbers) for key, numbers in groups.items())


def few(names: Sequence[str], width: int, more: str) -> str:
    """Return the names where they fit into a width, else their number and the first of them; more is the ellipsis."""
    text = short(names)
    return text if len(text) <= width else f"{len(names):,} hosts ({', '.join(names[:_FIRST])}, {more})"


def value(text: str) -> str:
    """Return a fact's value with the digests in it as short as Docker shows them."""
    return _DIGEST.sub(r"\1", text)


def about(subject: str, message: str) -> str:
    """Return a finding's message, with what it is about before it where it does not name that itself."""
    return message if subject in message else f"{subject}: {message}"


def _group(before: str, width: int, after: str, numbers: Sequence[int]) -> str:
    if not width:
        return before
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width}}{after}"
    rows = [
        [number for _, number in run]
        for _, run in groupby(enumerate(sorted(set(numbers))), lambda place: place[1] - place[0])
    ]
    parts = (f"{row[0]:0{width}}" + (f"-{row[-1]:0{width}}" if len(row) > 1 else "") for row in rows)
    return f"{before}[{','.join(parts)}]{after}"
