"""Text that a program printed in; which known errors stand in it, and what they say of this host, out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Literal

import msgspec

from lpxdoctor import bundled
from lpxdoctor.facts.anchors import anchors

Layer = Literal["hardware", "driver", "engine", "deployment"]
Sure = Literal["stated", "likely", "possible"]
SURENESS: tuple[Sure, ...] = ("stated", "likely", "possible")
SeverityWord = Literal["fail", "warn", "info"]

_LINE_CHARS = 400
_LINES_SHOWN = 3
_SENTENCE_CHARS = 1000
# Where a message of the kernel module goes on in the next line, under a time stamp of its own or not.
_NEXT_LINE = r"(?:\s+(?:[^\n]{0,80}?NVRM:\s*)?)"
# As the driver logs it, where numbers of buses and processes stand beside it, and as people mention it.
_XID = (
    r"\bXid \((?:PCI:)?[0-9a-f:.]+\): (?P<code901>NUMBERS)\b"
    r"|\bXids?\b(?! ?\((?:PCI|\w{4}:))[^\n]{0,60}?(?<![:.=\w])(?P<code902>NUMBERS)(?![:.]?\w)"
    r"(?! ?(?:minutes?|min|hours?|h|s|sec\w*|times?|%|W|°|C|GB|GiB|MiB|days?|tokens?|GPUs?)\b)"
    r"|\b(?:XidCriticalError(?:: Xid)?|DCGM_FI_DEV_XID_ERRORS(?:\{[^}\n]{0,400}\})?)[ =:]{1,3}(?P<code903>NUMBERS)\b"
)
# "no Xid 79 since" tells of none, nor does a guide's "if you see Xid 79" or "this solves the ..."; a message that
# itself begins with No is matched from there on.
_DENIED = re.compile(
    r"(?:\b(?:no|without|never|zero|nor)\s+(?:[\w-]+\s+){0,2}|(?:\b(?:did|do|does|is|was|were)\s?(?:not|n't)\s+)"
    r"(?:[\w-]+\s+){0,2}|(?:没有|未见|不再|并无|并非|不是|无)\s*(?:[\w-]+\s*)?"
    r"|\b(?:this|that|which) (?:solve|fixe|resolve)[sd] (?:the|my|an?) (?:[\w-]+\s+){0,2}"
    r"|\b(?:if|when(?:ever)?|should|in case) you (?:see|get|encounter|run into|hit)\s+(?:[\w-]+\s+){0,4}"
    r"|(?:如果|若|当)(?:你|您)?(?:看到|遇到|出现|碰到)[^\n]{0,12})[\"'(`\u201c\u300c]?$",
    re.IGNORECASE,
)

# A line of release notes, "fix(log): find Xid 119 (#190)": what a program was taught to find is not what it found.
_CHANGE = re.compile(
    r"\s*(?:[-*\u2022]\s*)?(?:feat|fix|nit|chore|docs?|ci|refactor|tests?|perf|build|style|revert)"
    r"(?:\([^)\n]{1,60}\)!?: |!?: (?=[^\n]*(?:\bin #\d+|\(#\d+\)|\bby @\w)))"
)


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a known error means under conditions: when must all, unless must none of them stand in the whole text."""

    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    proves: str = ""
    meaning: str = ""
    sure: Sure | None = None
    severity: SeverityWord | None = None
    ask: tuple[str, ...] = ()
    do: tuple[str, ...] = ()

    def holds(self, text: str) -> bool:
        """Tell whether its conditions do."""
        wanted = all(compiled(pattern).search(text) for pattern in self.when)
        return wanted and not any(compiled(pattern).search(text) for pattern in self.unless)


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of knowledge/messages.toml, which says what its fields are."""

    name: str
    layer: Layer
    pattern: str
    meaning: str
    source: str
    proves: str
    sure: Sure = "stated"
    engine: bool = False
    severity: SeverityWord | None = None
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    but: tuple[Reading, ...] = ()
    heard: str = ""

    def search(self, text: str) -> re.Match[str] | None:
        """Find it in a text."""
        return compiled(self.pattern).search(text)

    def reading(self, text: str) -> Reading | None:
        """Return what it means in this text, None where it means nothing here."""
        own = Reading(when=self.when, unless=self.unless)
        if not own.holds(text):
            return None
        other = next((reading for reading in self.but if reading.holds(text)), own)
        return Reading(
            proves=other.proves or self.proves,
            meaning=other.meaning or self.meaning,
            sure=other.sure or self.sure,
            severity=other.severity or self.severity,
            ask=other.ask or self.ask,
            do=other.do or (() if other.proves else self.do),
        )


@dataclass(frozen=True)
class Match:
    """A known error in a text: the line that says it, and what the pattern's groups caught."""

    name: str
    layer: Layer
    line: str
    values: Mapping[str, str]
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a text says: which check it proves, in which words, how surely; lines are (number from 1, text)."""

    name: str
    proves: str
    message: str
    sure: Sure
    severity: SeverityWord | None
    ask: tuple[str, ...]
    do: tuple[str, ...]
    lines: tuple[tuple[int, str], ...]
    times: int
    values: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1000)
def has_row(xid: int) -> bool:
    """Tell whether a row of the table is about an Xid."""
    specs = (spec for known in table() for spec in re.findall(r"<xid:([^>]+)>", known.pattern))
    return any(re.fullmatch(spec, str(xid)) for spec in specs)


@lru_cache(maxsize=1)
def table() -> tuple[Known, ...]:
    """Return the known errors, in the table's order: the deepest cause first."""
    rows = msgspec.toml.decode((bundled.KNOWLEDGE / "messages.toml").read_bytes())["errors"]
    return msgspec.convert(rows, tuple[Known, ...])


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of the table, ready to search with."""
    return re.compile(_expanded(pattern).replace("<nl>", _NEXT_LINE), re.IGNORECASE | re.MULTILINE)


def _expanded(pattern: str) -> str:
    """Return a pattern with each <xid:numbers> as what it stands for."""
    return re.sub(r"<xid:([^>]+)>", lambda found: _XID.replace("NUMBERS", found[1]), pattern)


@cache
def needed(pattern: str) -> tuple[str, ...]:
    """Return words of which at least one stands in lower case wherever a pattern of the table matches, () for none."""
    return anchors(_expanded(pattern).replace("<nl>", r"\s*"))


def find(text: str) -> tuple[Match, ...]:
    """Return the known errors of engines in a text, each at its first place, the deepest cause first."""
    found = _found(text, text.lower())
    read = ((known, match, known.reading(text)) for known, match in found if known.engine)
    return tuple(_match(known, match, reading.meaning, text) for known, match, reading in read if reading)


def tell(text: str, about: Mapping[str, str], beside: str = "") -> tuple[Told, ...]:
    """Return all that a text says of a host, the deepest cause first.

    Args:
        text: what a program or a person wrote.
        beside: the same text in other forms, which conditions see too, as one whose lines were broken and are whole.
        about: what else is known, {"gpu": "NVIDIA L4", "arch": "Ada", ...}: conditions see it as lines "@arch=Ada",
            and meanings name it in braces.
    """
    whole = f"{text}\n{beside}\n" + "".join(f"@{name}={value}\n" for name, value in about.items())
    told = (_told(known, text, whole, about) for known, _ in _found(text, text.lower()))
    return tuple(each for each in told if each)


def hear(sentence: str) -> tuple[Told, ...]:
    """Return the symptoms that a person's sentence may mean, by the words of logs or else by looser ones."""
    told = tell(sentence, {})
    short = sentence[:_SENTENCE_CHARS]
    return told or tuple(
        _heard(known, short) for known in table() if known.heard and compiled(known.heard).search(short)
    )


def _heard(known: Known, sentence: str) -> Told:
    return Told(
        name=known.name,
        proves=known.proves,
        message=filled(known.meaning, {}),
        sure="possible",
        severity=known.severity,
        ask=known.ask,
        do=(),
        lines=((1, sentence),),
        times=1,
    )


def _found(text: str, lowered: str) -> Iterator[tuple[Known, re.Match[str]]]:
    """Yield the known errors in a text with their first match; most are ruled out by a word that they need."""
    for known in table():
        words = needed(known.pattern)
        if not words or any(word in lowered for word in words):
            found = known.search(text)
            if found:
                yield known, found


def _told(known: Known, text: str, whole: str, about: Mapping[str, str]) -> Told | None:
    if about.get("xids_explained") and "<xid:" in known.pattern:
        return None
    matches = [found for found in compiled(known.pattern).finditer(text) if not denied(text, found.start())]
    reading = known.reading(whole) if matches else None
    if reading is None:
        return None
    values = {**about, **{name: value for found in reversed(matches) for name, value in _values(found).items()}}
    first = {text.rfind("\n", 0, found.start()): found for found in reversed(matches)}  # of each line the first
    shown = [first[begin] for begin in sorted(first)[:_LINES_SHOWN]]
    return Told(
        name=known.name,
        proves=reading.proves,
        message=filled(reading.meaning, values),
        sure=reading.sure or "stated",
        severity=reading.severity,
        ask=tuple(filled(line, values) for line in reading.ask),
        do=tuple(filled(line, values) for line in reading.do),
        lines=tuple((text.count("\n", 0, found.start()) + 1, _line(text, found)) for found in shown),
        times=len(first),
        values=values,
    )


def denied(text: str, at: int) -> bool:
    """Tell whether the words before a place in its line say that there is no such thing."""
    begin = text.rfind("\n", 0, at) + 1
    return _CHANGE.match(text, begin) is not None or _DENIED.search(text, max(begin, at - 60), at) is not None


def _match(known: Known, match: re.Match[str], meaning: str, text: str) -> Match:
    values = _values(match)
    return Match(
        name=known.name,
        layer=known.layer,
        line=_line(text, match),
        values=values,
        meaning=filled(meaning, values),
    )


def _values(match: re.Match[str]) -> dict[str, str]:
    """Return what the groups caught; a group may come several times with a number behind its name."""
    return {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value}


def _line(text: str, match: re.Match[str]) -> str:
    begin = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[begin : end if end >= 0 else None].strip()[:_LINE_CHARS]


def filled(meaning: str, values: Mapping[str, Any]) -> str:
    """Return a meaning with the values in its braces; a part in brackets is left out where one is missing."""

    def part(found: re.Match[str]) -> str:
        return found[1] if all(values.get(name) for name in re.findall(r"\{(\w+)\}", found[1])) else ""

    whole = re.sub(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]", part, meaning)
    said = " ".join(re.sub(r"\{(\w+)\}", lambda group: str(values.get(group[1], "")), whole).split())
    return re.sub(r"\s+(?=[,.;:)](?:\s|$))", "", said)
