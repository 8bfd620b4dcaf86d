"""JSON as a person wrote it in; the same text with single values set or taken out, or its surest faults mended, out.

What is not concerned keeps its bytes: order, indentation, spaces. Values are reached by a path of keys.
"""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
# Strings are passed over whole, so that "https://..." holds no comment.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_STRAY_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_MOST_MISSING = 20  # commas: with more of them gone it is no slip


class Member(NamedTuple):
    """One "key": value of an object, by where it stands."""

    key: str
    start: int  # of the key's first quote
    value_start: int
    end: int  # behind the value


def parsed(text: str) -> dict[str, Any]:
    """Return the object that a text is; an empty one is an empty object, as for Docker. Raise ValueError elsewise."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - one kind of error for one kind of fault
    return value


def mended(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a text without its surest faults, and what they were; raise ValueError where that does not make it JSON.

    Comments, commas before a closing bracket and commas forgotten between two members can mean one thing only.
    """
    found: list[str] = []
    bare = _TOKEN.sub(lambda token: token[0] if token[0].startswith('"') else "", text)
    if bare != text:
        found.append("comments")
        bare = re.sub(r"[ \t]+(?=\n)", "", bare)
    closed = _STRAY_COMMA.sub(lambda match: match[1] or "", bare)
    if closed != bare:
        found.append("a comma before a closing bracket")
    whole = _with_commas(closed)
    if whole != closed:
        found.append("a comma forgotten between two members")
    parsed(whole)
    return whole, tuple(found)


def _with_commas(text: str) -> str:
    for _ in range(_MOST_MISSING):
        try:
            parsed(text)
        except json.JSONDecodeError as error:  # noqa: PERF203 - each fault shows where the next one is
            at = error.pos
            if not error.msg.startswith("Expecting ',' delimiter") or text[at : at + 1] != '"' or not text[:at].strip():
                return text
            behind = len(text[:at].rstrip())
            text = text[:behind] + "," + text[behind:]
        except ValueError:
            return text
        else:
            return text
    return text


def members(text: str, start: int) -> list[Member]:
    """Return the members of the object whose brace is at start, in a text that is valid."""
    found: list[Member] = []
    position = _space(text, start + 1)
    while text[position] != "}":
        key, behind = scanstring(text, position + 1, True)  # strict; it takes no keywords
        value_start = _space(text, _space(text, behind) + 1)
        _, end = json.JSONDecoder().raw_decode(text, value_start)
        found.append(Member(key, position, value_start, end))
        position = _space(text, end)
        if text[position] == ",":
            position = _space(text, position + 1)
    return found


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value set; objects on the way are made. Of keys that stand twice the last one counts."""
    if not text.strip("\ufeff \t\r\n"):
        text += "{}\n"
    return _set(text, text.index("{"), list(path), value, 0)


def _set(text: str, brace: int, path: list[str], value: Any, depth: int) -> str:
    same = [member for member in members(text, brace) if member.key == path[0]]
    if same and len(path) > 1 and text[same[-1].value_start] == "{":
        return _set(text, same[-1].value_start, path[1:], value, depth + 1)
    for key in reversed(path[1:]):
        value = {key: value}
    if not same:
        return _insert(text, brace, path[0], value, depth)
    here = same[-1]
    return text[: here.value_start] + _written(text, value, _before(text, here.start)) + text[here.end :]


def _insert(text: str, brace: int, key: str, value: Any, depth: int) -> str:
    inside, name = members(text, brace), json.dumps(key, ensure_ascii=False) + ": "
    if inside:
        first, last = inside[0], inside[-1]
        gap = text[brace + 1 : first.start] if len(inside) == 1 else _gap(text, inside[-2].end, last.start)
        gap = gap or " "
        return text[: last.end] + "," + gap + name + _written(text, value, gap) + text[last.end :]
    close, unit, newline = text.index("}", brace), _unit(text), _newline(text)
    if not unit:
        return text[: brace + 1] + name + _written(text, value, "") + text[close:]
    gap = newline + unit * (depth + 1)
    return text[: brace + 1] + gap + name + _written(text, value, gap) + newline + unit * depth + text[close:]


def _gap(text: str, start: int, end: int) -> str:
    """Return the space behind the comma between two members."""
    return text[text.index(",", start) + 1 : end]


def without(text: str, path: Sequence[str]) -> str:
    """Return the text without a value, however often its key stands there; objects left empty stay."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    return _remove(text, text.index("{"), list(path))


def _remove(text: str, brace: int, path: list[str]) -> str:
    inside = members(text, brace)
    for index in reversed(range(len(inside))):
        member = inside[index]
        if member.key != path[0]:
            continue
        if len(path) > 1:
            if text[member.value_start] == "{":
                text = _remove(text, member.value_start, path[1:])
        elif index > 0:
            text = text[: inside[index - 1].end] + text[member.end :]
        elif len(members(text, brace)) > 1:
            text = text[: member.start] + text[members(text, brace)[1].start :]
        else:
            text = text[: brace + 1] + text[text.index("}", member.end) :]
    return text


def _before(text: str, start: int) -> str:
    """Return the space before a key, with its newline where it begins a line."""
    return text[len(text[:start].rstrip(" \t\r\n")) : start]


def _written(text: str, value: Any, gap: str) -> str:
    """Return a value as it stands behind a key with this space before it: on one line where the key shares one."""
    if "\n" not in gap:
        return json.dumps(value, ensure_ascii=False)
    base = gap.rpartition("\n")[2]
    return json.dumps(value, ensure_ascii=False, indent=_unit(text) or "    ").replace("\n", _newline(text) + base)


def _unit(text: str) -> str:
    """Return what one level is indented by, the least of what is there; "" for a text on one line that has members."""
    found: list[str] = re.findall(r'\n([ \t]+)"', text)
    if found:
        return min(found, key=len)
    return "" if '"' in text else "    "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
