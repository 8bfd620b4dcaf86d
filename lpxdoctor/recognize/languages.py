"""Lines of a text in; the same lines with what programs say in the language of the login in English, out."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Literal

import msgspec

from lpxdoctor import bundled

Place = Literal["anywhere", "place", "package"]
# What stands before words that are translated only there, as the table says.
_BEFORE: dict[Place, str] = {"anywhere": "", "place": r":\d+: ", "package": r"^\s*\S+ ?: |^\s{8,}"}
_AFTER: dict[Place, str] = {"anywhere": "", "place": r"[ \xa0]?:\s*", "package": r"[ \xa0]?:\s*"}
_NO_MODULE = re.compile(r"(?:在目录 (\S+) (?:下|中)?)?(?:找不到|未找到|没有找到)模块 (\S+)")


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    english: str
    said: tuple[str, ...]
    behind: Place = "anywhere"


@cache
def _rows() -> tuple[_Row, ...]:
    table = msgspec.toml.decode((bundled.KNOWLEDGE / "translations.toml").read_bytes())
    return msgspec.convert(table["rows"], tuple[_Row, ...])


def english(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines in English, as far as the words of programs in other languages are known."""
    found = tuple(lines)
    text = "\n".join(found)
    for pattern, words in _patterns(text):
        found = tuple(pattern.sub(partial(_said, words), line) for line in found)
    return tuple(_no_module(line) for line in found) if "模块" in text else found


def _patterns(text: str) -> Iterator[tuple[re.Pattern[str], dict[str, str]]]:
    """Yield for each place what to look for there and its English; only words that the text has, which are few."""
    for place, before in _BEFORE.items():
        words = {said: row.english for row in _rows() if row.behind == place for said in row.said if said in text}
        if words:
            longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
            yield re.compile(rf"({before})({longest_first})({_AFTER[place]})"), words


def _said(words: Mapping[str, str], match: re.Match[str]) -> str:
    return match[1] + words[match[2]] + (": " if match[3] else "")


def _no_module(line: str) -> str:
    return _NO_MODULE.sub(lambda found: f"Module {found[2]} not found in directory {found[1] or ''}", line)
