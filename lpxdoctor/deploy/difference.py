"""What a task changes, for people: one side of Ansible's difference in, lines to compare out."""

import json
from typing import Any


def lines(side: Any) -> list[str]:
    """Return text by its lines, and anything else as one line for each of its values, sorted."""
    if side is None:
        return []
    if isinstance(side, str):
        return side.splitlines()
    if isinstance(side, dict):
        return [f"{key}: {_shown(value)}" for key, value in sorted(side.items())]
    return [_shown(side)]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
