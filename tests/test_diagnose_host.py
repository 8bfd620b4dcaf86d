"""Diagnoses of this host by a symptom: what it is asked, and what is told besides."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import policy
from lpxdoctor.cli import diagnose, run
from lpxdoctor.evidence import Answer, Evidence, to_json
from lpxdoctor.facts.gpu import NVML
from lpxdoctor.recognize import recognize
from tests.diagnosing import FALLEN, checks


def asked(monkeypatch: pytest.MonkeyPatch, evidence: Evidence) -> list[str]:
    """Let a host answer evidence, and return the keys of what it was asked."""
    keys: list[str] = []

    def ask(probes: Any, **_: Any) -> Evidence:
        keys.extend(probe.key for probe in probes)
        return evidence

    monkeypatch.setattr(diagnose, "ask", ask)
    return keys


def test_a_symptom_asks_this_host_what_may_explain_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = asked(monkeypatch, Evidence("gpu-1"))
    assert run(["diagnose", "--symptom", "the first token is slow, TTFT of 9 s", "--format", "json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert [finding["id"] for finding in data["findings"]] == ["decode.first-token-slow"]
    assert NVML.key in keys
    assert set(data["checks"]) < {check.id for check in checks()}


def test_a_symptom_that_is_not_known_asks_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, Evidence("gpu-1", {NVML.key: Answer(failure="absent", reason="no")}))
    with contextlib.suppress(SystemExit):
        run(["diagnose", "--symptom", "it smells of burnt dust", "--format", "json"])
    captured = capsys.readouterr()
    assert "every check is run" in captured.err
    assert len(json.loads(captured.out)["checks"]) == len(checks())


def test_evidence_that_was_told_a_symptom_stays_evidence() -> None:
    evidence = replace(Evidence("h"), answers={"told": Answer([{"check": "x"}])})
    assert json.loads(to_json(evidence))["answers"]["told"]


def test_a_waiver_of_this_site_does_not_hide_what_a_text_says(tmp_path: Path) -> None:
    site = tmp_path / "policy.toml"
    site.write_text('[[waivers]]\nid = "gpu.lost"\nreason = "known"\nuntil = 2999-01-01\n')
    recognition = recognize(io.BytesIO(FALLEN.encode()))
    judgement = diagnose.judge(recognition, checks(), policy.load(site))
    assert [result.check.id for result in judgement.found] == ["gpu.lost"]
