"""Text that a program printed in; which known errors stand in it, and what they say of this host, out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from lpxdoctor import bundled

Layer = Literal["hardware", "driver", "engine", "deployment"]

_LINE_CHARS = 400


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of knowledge/messages.toml, which says what its fields are."""

    name: str
    layer: Layer
    pattern: str
    meaning: str
    source: str

    def search(self, text: str) -> re.Match[str] | None:
        """Find it in a text; re keeps the compiled pattern."""
        return re.search(self.pattern, text, re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """A known error in a text: the line that says it, its number from 1, and what the pattern's groups caught."""

    name: str
    layer: Layer
    line: str
    number: int
    values: Mapping[str, str]
    meaning: str


@lru_cache(maxsize=1)
def table() -> tuple[Known, ...]:
    """Return the known errors, causes far below first."""
    rows = msgspec.toml.decode((bundled.KNOWLEDGE / "messages.toml").read_bytes())["errors"]
    return msgspec.convert(rows, tuple[Known, ...])


def find(text: str) -> tuple[Match, ...]:
    """Return the known errors in a text, each at its first place, causes far below first."""
    found = ((known, known.search(text)) for known in table())
    return tuple(_match(known, match, text) for known, match in found if match)


def _match(known: Known, match: re.Match[str], text: str) -> Match:
    begin = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = text[begin : end if end >= 0 else None].strip()
    values = {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value}
    return Match(
        name=known.name,
        layer=known.layer,
        line=line[:_LINE_CHARS],
        number=text.count("\n", 0, match.start()) + 1,
        values=values,
        meaning=" ".join(re.sub(r"\{(\w+)\}", lambda group: values.get(group[1], ""), known.meaning).split()),
    )
