"""The JSON report: valid against the schema that is published, its counts adding up."""

import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.report.json import render
from tests.report.schemas import valid

HOSTS = sorted(Path("tests/hosts").glob("*/evidence.json"))


def report(evidence: Evidence) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render(evaluate(catalog.load(None), evidence, policy.load())))
    return document


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.parent.name)
def test_a_report_is_valid_and_its_counts_add_up(path: Path) -> None:
    document = report(from_json(path.read_text(encoding="utf-8")))
    valid(document, "report-1")
    states = list(document["checks"].values())
    assert document["coverage"]["of"] == len(states) - states.count("not applicable")
    assert document["coverage"]["ran"] == sum(states.count(state) for state in ("pass", "found", "waived"))
    assert {finding["id"] for finding in document["findings"]} == {
        id_ for id_, state in document["checks"].items() if state == "found"
    }
    blocked = [id_ for id_, state in document["checks"].items() if state == "blocked"]
    assert sorted(blocked) == sorted({id_ for finding in document["findings"] for id_ in finding["blocked"]})


def test_a_host_that_answered_nothing_is_unknown() -> None:
    document = report(Evidence("gpu-1"))
    assert (document["verdict"], document["findings"]) == ("unknown", [])
    assert document["coverage"]["ran"] == 0
    assert len(document["unknown"]) == document["coverage"]["of"] > 100
