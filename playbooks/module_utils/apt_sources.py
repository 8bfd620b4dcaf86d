"""apt's files of sources: their texts in; the entries of the distribution's own archive, by their place, out."""

# Runs on the managed host: the standard library of Python 3.9 alone.
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ansible.module_utils import text_file

LINE = re.compile(
    r"^(?P<type>deb(?:-src)?)[ \t]+(?:\[(?P<options>[^\]\n]*)\][ \t]+)?(?P<uris>\S+)[ \t]+(?P<suites>\S+)[ \t]+"
    r"(?P<components>[^#\n]*?)[ \t]*(?:#.*)?$",
    re.MULTILINE,
)
STANZA = re.compile(r"(?:^[^\n]*\S[^\n]*(?:\n|\Z))+", re.MULTILINE)
FIELD = r"(?im)^{}:[ \t]*(\S[^\n]*?)[ \t]*$"
# Third parties name their own key, and some call their suite as the release: only this tells them apart.
OWN_KEY = re.compile(r"(?:debian|ubuntu)-archive-")
SECURITY = ("-security", "/updates")


class Span(NamedTuple):
    """A piece of a text and where it stands."""

    start: int
    end: int
    text: str


class Entry(NamedTuple):
    """One source in a file."""

    line: int  # where the line of its URIs begins
    uris: Span
    suites: tuple[str, ...]
    components: Span
    key: str  # "" where none is named

    def is_security(self) -> bool:
        """Tell whether it has nothing but security updates."""
        return all(suite.endswith(SECURITY) for suite in self.suites)


def files(root: Path) -> dict[Path, str]:
    """Return the texts of the files that apt reads."""
    places = (root / "etc/apt/sources.list", *sorted((root / "etc/apt/sources.list.d").glob("*")))
    found = [path for path in places if path.suffix in (".list", ".sources") and path.is_file()]
    return {path: text_file.read(path) for path in found}


def of_archive(texts: Mapping[Path, str], codename: str) -> dict[Path, list[Entry]]:
    """Return the entries of a release's archive; those with a key of somebody else only where there are no others."""
    found = {path: [one for one in entries(path, text) if _of(one, codename)] for path, text in texts.items()}
    own = {path: [one for one in rows if not one.key or OWN_KEY.search(one.key)] for path, rows in found.items()}
    return own if any(own.values()) else found


def _of(entry: Entry, codename: str) -> bool:
    wanted = rf"{re.escape(codename)}(-updates|-security|-backports|-proposed-updates|-proposed|/updates)?"
    return "main" in entry.components.text.split() and all(re.fullmatch(wanted, suite) for suite in entry.suites)


def entries(path: Path, text: str) -> Iterator[Entry]:
    """Yield the entries of a file, in either of apt's formats."""
    yield from _stanzas(text) if path.suffix == ".sources" else _lines(text)


def _lines(text: str) -> Iterator[Entry]:
    for match in LINE.finditer(text):
        uris, components = (Span(*match.span(name), match[name]) for name in ("uris", "components"))
        key = re.search(r"signed-by=(\S+)", match["options"] or "")
        yield Entry(match.start(), uris, (match["suites"],), components, key[1] if key else "")


def _stanzas(text: str) -> Iterator[Entry]:
    for stanza in STANZA.finditer(text):
        uris, suites, components = (_field(stanza, name) for name in ("URIs", "Suites", "Components"))
        if not (uris and suites and components) or re.search(r"(?im)^Enabled:\s*(?:no|false|0)\b", stanza[0]):
            continue
        key = re.search(r"(?im)^Signed-By:([^\n]*(?:\n[ \t][^\n]*)*)", stanza[0])
        line = text.rfind("\n", 0, uris.start) + 1
        yield Entry(line, uris, tuple(suites.text.split()), components, key[1].strip() if key else "")


def _field(stanza: re.Match[str], name: str) -> Span | None:
    found = re.search(FIELD.format(name), stanza[0])
    return Span(stanza.start() + found.start(1), stanza.start() + found.end(1), found[1]) if found else None


def edited(text: str, edits: Iterable[Span]) -> str:
    """Return a text with pieces replaced; of each the text is the new one."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
