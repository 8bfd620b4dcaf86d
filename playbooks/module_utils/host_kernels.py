"""The managed host's files in; its installed kernels, the oldest first, out."""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import re
from pathlib import Path


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts 6.8.0-9 before 6.8.0-100."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]


def installed(root: Path) -> list[str]:
    """Return the releases that have both a kernel and modules, the oldest first."""
    bootable = {path.name.partition("-")[2] for path in (root / "boot").glob("vmlinuz-*")}
    having = {path.parent.name for path in (root / "lib/modules").glob("*/modules.dep")}
    return sorted(bootable & having, key=natural)
