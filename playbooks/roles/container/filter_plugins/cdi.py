"""Texts of CDI specifications in; which of them no runtime can use out. Runs on the control node, which has PyYAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml


def broken(texts: Mapping[str, str]) -> list[str]:
    """Return the paths whose text is no CDI specification, of {path: text}."""
    return [path for path, text in texts.items() if not _is_specification(text)]


def _is_specification(text: str) -> bool:
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        return bool(data["cdiVersion"] and data["kind"] and [each["name"] for each in data["devices"]])
    except (yaml.YAMLError, KeyError, TypeError, RecursionError):
        return False


class FilterModule:
    """What Ansible asks for the filters of a role."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"container_cdi_broken": broken}
