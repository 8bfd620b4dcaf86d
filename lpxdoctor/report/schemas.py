"""Types of what commands print as JSON in, their JSON Schemas out: `python -m lpxdoctor.report.schemas docs/schema`."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor.report import baselines, compare_json, fix, fleet, json, provision, tune

# File without its suffix, the number being the document's `schema` -> the command, what its --format json prints.
DOCUMENTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "report-1": ("check", json.Document),
    "fleet-1": ("check -i", fleet.FleetDocument),
    "fix-1": ("fix", fix.Document),
    "provision-1": ("provision", provision.Document),
    "baseline-1": ("baseline", compare_json.BaselineDocument),
    "baselines-1": ("baseline -i", baselines.Document),
    "compare-1": ("compare", compare_json.Document),
    "tune-1": ("tune", tune.Document),
}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document."""
    command, document = DOCUMENTS[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"lpxdoctor {command} --format json",
        **msgspec.json.schema(document),
    }


def text(name: str) -> str:
    """Return the file that is published."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2).decode() + "\n"


if __name__ == "__main__":
    for name in DOCUMENTS:
        Path(sys.argv[1], f"{name}.json").write_text(text(name), encoding="utf-8")
