"""What a task changes, for people: the two sides of Ansible's difference in, the lines that differ out."""

import json
from difflib import unified_diff
from typing import Any


def changed_lines(before: Any, after: Any) -> list[str]:
    """Return what goes (-) and what comes (+), nothing of what stays."""
    compared = list(unified_diff(_lines(before), _lines(after), n=0, lineterm=""))
    return [line for line in compared[2:] if not line.startswith("@@")]


def _lines(side: Any) -> list[str]:
    if side is None:
        return []
    if isinstance(side, str):
        return side.splitlines()
    if isinstance(side, dict):
        # A list has a line for each of its items: of a long command only what differs is shown.
        pairs = ((key, item) for key, value in sorted(side.items()) for item in _items(value))
        return [f"{key}: {_shown(item)}" for key, item in pairs]
    return [_shown(side)]


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
