"""Types of what commands print as JSON in, their JSON Schemas out: `python -m lpxdoctor.report.schemas docs/schema`."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor.report import (
    baselines,
    bundle,
    checks,
    compare_json,
    deploy,
    evidence,
    fix,
    fleet,
    json,
    knowledge,
    plan_json,
    provision,
    tune,
)

# File without its suffix, the number being the document's `schema` -> what prints it, and its type.
DOCUMENTS: dict[str, tuple[tuple[str, ...], type[msgspec.Struct]]] = {
    "report-1": (("check", "diagnose"), json.Document),
    "fleet-1": (("check -i HOSTS",), fleet.FleetDocument),
    "checks-1": (("checks",), checks.Document),
    "explain-1": (("explain",), checks.ExplainedDocument),
    "knowledge-1": (("knowledge",), knowledge.Document),
    "evidence-1": (("collect",), evidence.Document),
    "fix-1": (("fix",), fix.Document),
    "plan-1": (("plan",), plan_json.Document),
    "deploy-1": (("deploy",), deploy.Document),
    "undeploy-1": (("undeploy",), deploy.UndeployDocument),
    "provision-1": (("provision",), provision.Document),
    "provision-plan-1": (("provision --plan",), provision.PlanDocument),
    "bundle-1": (("bundle create", "bundle show"), bundle.Document),
    "bundle-apply-1": (("bundle apply",), bundle.AppliedDocument),
    "baseline-1": (("baseline",), compare_json.BaselineDocument),
    "baselines-1": (("baseline -i HOSTS",), baselines.Document),
    "compare-1": (("compare",), compare_json.Document),
    "tune-1": (("tune",), tune.Document),
}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document."""
    commands, document = DOCUMENTS[name]
    made = msgspec.json.schema(document)
    root = made["$defs"][document.__name__]
    root["required"] = list(dict.fromkeys(("schema", *root["required"])))  # msgspec leaves out what has a default
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"What {' and '.join(f'lpxdoctor {command}' for command in commands)} tells programs",
        **made,
    }


def text(name: str) -> str:
    """Return the file that is published."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2).decode() + "\n"


if __name__ == "__main__":
    for name in DOCUMENTS:
        Path(sys.argv[1], f"{name}.json").write_text(text(name), encoding="utf-8")
