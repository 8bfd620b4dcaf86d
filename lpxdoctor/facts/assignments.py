"""Text of key=value lines in (os-release, uevent, grubenv, shell defaults), a dictionary out."""

import re

_LINE = re.compile(r"\s*(?:export\s+)?([\w.]+)\s*=\s*(.*?)\s*")


def assignments(text: str) -> dict[str, str]:
    """Return {key: value}, the last one of a key, without the quotes around a value; other lines are left out."""
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[1]: _unquoted(match[2]) for match in matches if match}


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
