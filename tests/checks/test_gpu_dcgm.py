"""DCGM's complaints: what it fails is a failure, what it would have otherwise is a note, and health is silent."""

from dataclasses import replace

import pytest

from lpxdoctor import catalog
from lpxdoctor.check import Finding, NotApplicable
from lpxdoctor.facts.dcgm import Dcgm, Warned

HEALTHY = Dcgm(installed=True, refusal="", warned=())
REMAP = Warned("memory", "fail", "1", "row remapping failed", "isolate")
PERSISTENCE = Warned("software", "fail", "0", "Persistence mode for GPU 0 is disabled.", "config")


def found(id_: str, dcgm: Dcgm) -> list[Finding]:
    (check,) = [check for check in catalog.load(None) if check.id == id_]
    return list(check(dcgm))


def test_a_failed_test_is_a_failure_with_dcgms_words() -> None:
    (finding,) = found("gpu.dcgm-test-failed", replace(HEALTHY, warned=(REMAP, PERSISTENCE)))
    assert finding.subject == "GPU 1"
    assert "out of service" in finding.message
    assert finding.seen[0].value == "row remapping failed"


def test_a_setting_is_a_note() -> None:
    (finding,) = found("gpu.dcgm-setting-refused", replace(HEALTHY, warned=(REMAP, PERSISTENCE)))
    assert finding.message == "Persistence mode for GPU 0 is disabled."


@pytest.mark.parametrize("id_", ["gpu.dcgm-test-failed", "gpu.dcgm-setting-refused"])
def test_health_is_silent_and_no_dcgm_is_no_fault(id_: str) -> None:
    assert found(id_, HEALTHY) == []
    with pytest.raises(NotApplicable, match="not installed"):
        found(id_, replace(HEALTHY, installed=False))
    with pytest.raises(NotApplicable, match="unable to connect"):
        found(id_, replace(HEALTHY, refusal="unable to connect"))
