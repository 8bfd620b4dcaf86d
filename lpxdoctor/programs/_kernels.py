"""Names with numbers in, as kernel releases are; a key that sorts them as GRUB sorts kernels out.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import re


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts 6.8.0-100 behind 6.8.0-9."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]
