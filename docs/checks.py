"""Write docs/checks.md: every check by its link of the chain, from the docstrings, and what is left out and why.

python docs/checks.py > docs/checks.md
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor import catalog
from lpxdoctor.check import CHAIN, Check

LINKS = {
    "host": "The machine below the driver",
    "boot": "What the next boot will load, and what this one did",
    "driver": "The driver: module, libraries, packages, device files",
    "gpu": "Each GPU",
    "fabric": "NVSwitch and NVLink",
    "cuda": "CUDA, on this host and of the pinned images",
    "container": "Docker, the NVIDIA Container Toolkit and CDI",
    "engine": "The engine's container, its start and its log",
    "decode": "Speed and answers, from what people report",
}
COVERAGE = Path(__file__).with_name("coverage.toml")


def coverage() -> list[dict[str, Any]]:
    """Return what others check and what becomes of it here."""
    rows: list[dict[str, Any]] = msgspec.toml.decode(COVERAGE.read_bytes(), type=dict[str, Any])["rows"]
    return rows


def page() -> str:
    """Return the page."""
    return "\n".join(_lines(catalog.load(None), coverage())) + "\n"


def _lines(checks: tuple[Check[...], ...], rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from (
        "# What is judged",
        "",
        "<!-- Made by docs/checks.py from the checks themselves. -->",
        "",
        f"{len(checks)} checks, in the order of the chain: a fault of an earlier link explains one of a later.",
        "`lpxdoctor explain ID` tells why a check matters, how to fix what it finds, and where that is known from.",
    )
    for word in CHAIN:
        mine = [check for check in checks if check.id.startswith(word + ".")]
        yield from (
            "",
            f"## {LINKS[word]} ({len(mine)})",
            "",
            "| id | severity | what | why |",
            "| --- | --- | --- | --- |",
        )
        yield from (
            f"| `{check.id}` | {check.severity.value} | {_cell(check.title)} | {_cell(first_sentence(check.why))} |"
            for check in mine
        )
    out = [row for row in rows if "because" in row]
    other = [row for row in rows if "how" in row]
    yield from ("", "## Not judged", "", "What other tools check, or people ask them to, and is left out here:", "")
    yield from ("| what | why it is left out |", "| --- | --- |")
    yield from (f"| {_cell(row['what'])} | {_cell(row['because'])} |" for row in out)
    yield from ("", "And what is done otherwise than by a check:", "", "| what | how |", "| --- | --- |")
    yield from (f"| {_cell(row['what'])} | {_cell(row['how'])} |" for row in other)


def first_sentence(text: str) -> str:
    """Return the first sentence of a section; a full stop within a version or a path ends none."""
    flat = " ".join(text.split())
    end = re.search(r"[.!?](?=\s+[A-Z\d`\"(]|$)", flat)
    return flat[: end.start()] if end else flat


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
