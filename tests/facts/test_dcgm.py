"""DCGM's diagnostic in both of its JSON forms, and what is no answer."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Evidence, Unreadable
from lpxdoctor.facts.dcgm import DIAG, Dcgm, Warned, warnings


def told(stdout: str, code: int = 0, stderr: str = "") -> Dcgm:
    answer = Answer({"exit": code, "stdout": stdout, "stderr": stderr})
    return Dcgm.parse(Evidence(host="h", answers={DIAG.key: answer}))


def dcgm3(*tests: tuple[str, str, Any, list[str]]) -> str:
    """Return the form of DCGM 3, with the null between tests that it really prints."""
    rows: list[Any] = []
    for name, status, gpus, words in tests:
        rows += [{"name": name, "results": [{"gpu_ids": gpus, "status": status, "warnings": words}]}, None]
    return "WARNING: a line before it\n" + json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": rows}], "version": "3.1.0"}}
    )


def dcgm4(status: str, *, gpu: int = 0, words: str = "", severity: int | None = None) -> str:
    warning = {"error_id": 29, "warning": words, **({} if severity is None else {"error_severity": severity})}
    result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    result |= {"warnings": [warning]} if words else {}
    tests = [{"name": "software", "results": [result], "test_summary": {"status": status}}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}})


def test_what_passes_warns_of_nothing() -> None:
    assert warnings(dcgm3(("Denylist", "PASS", "0,1", []), ("Inforom", "SKIPPED", "0,1", []))) == ()
    assert warnings(dcgm4("Pass")) == ()


def test_a_failure_of_dcgm_3_has_its_gpu_and_words() -> None:
    text = dcgm3(("Page Retirement/Row Remap", "FAIL", 3, ["GPU 3 had uncorrectable memory errors."]))
    assert warnings(text) == (
        Warned("Page Retirement/Row Remap", "fail", "3", "GPU 3 had uncorrectable memory errors.", ""),
    )
    assert not warnings(text)[0].is_setting


def test_a_failure_of_dcgm_4_has_its_severity() -> None:
    (isolate,) = warnings(dcgm4("Fail", gpu=1, words="row remap failed", severity=2))
    assert (isolate.subject, isolate.severity, isolate.is_setting) == ("GPU 1", "isolate", False)
    (config,) = warnings(dcgm4("Fail", words="Persistence mode for GPU 0 is disabled.", severity=5))
    assert config.is_setting


def test_persistence_mode_of_dcgm_3_is_a_setting() -> None:
    (warned,) = warnings(dcgm3(("Persistence Mode", "FAIL", "0,1", ["Persistence mode for GPU 0 is disabled."])))
    assert warned.is_setting
    assert warned.subject == ""


def test_no_test_at_all_is_not_health() -> None:
    with pytest.raises(Unreadable, match="no test"):
        warnings('{"DCGM GPU Diagnostic": {"version": "4.2.3"}}')
    facts = told('{"DCGM GPU Diagnostic": {"runtime_error": "unsupported GPU 0", "version": "4.2.3"}}')
    with pytest.raises(Unreadable, match="unsupported GPU 0"):
        assert facts.warned


def test_a_host_engine_that_does_not_run_is_said() -> None:
    facts = told("", code=255, stderr="Error: unable to establish a connection to the specified host: localhost\n")
    assert facts.refusal.startswith("Error: unable to establish a connection")


def test_no_dcgm_is_not_installed_and_not_asked_is_unknown() -> None:
    absent = Evidence(host="h", answers={DIAG.key: Answer(failure="absent", reason="no dcgmi")})
    assert Dcgm.parse(absent).installed is False
    with pytest.raises(Unreadable, match="was not asked"):
        assert Dcgm.parse(Evidence(host="h", answers={})).installed


@given(st.text())
def test_any_text_is_understood_or_unreadable(text: str) -> None:
    for field in ("installed", "refusal", "warned"):
        with suppress(Unreadable):
            getattr(told("{" + text), field)
