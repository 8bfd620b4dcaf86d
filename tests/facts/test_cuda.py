"""What trying CUDA answered, for real on an H200 and on this machine, becomes a fact that says what is in the way."""

import contextlib
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Unreadable
from lpxdoctor.facts.cuda import CUDA, HUNG, Cuda
from tests.facts.builders_cuda import tried
from tests.facts.given import H200, evidence


def test_cuda_that_works_has_computed_on_every_gpu() -> None:
    cuda = tried()
    assert cuda.error is None
    assert cuda.started
    assert [device.fault for device in cuda.devices] == [None]
    assert cuda.library_version == "580.159.04"
    assert not cuda.compat
    assert cuda.asked_on == datetime.date(2026, 11, 29)


@pytest.mark.parametrize(
    ("case", "call", "code", "name", "version", "compat"),
    [
        ("cuda of an older library", "cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "535.261.03", False),
        ("cuda, compat library", "cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "580.95.05", True),
        ("cuda, stub", "cuDriverGetVersion", 34, "CUDA_ERROR_STUB_LIBRARY", "", False),
    ],
)
def test_a_wrong_library_is_named_with_its_error(
    case: str, call: str, code: int, name: str, version: str, compat: bool
) -> None:
    cuda = tried(case)
    assert cuda.error is not None
    assert (cuda.error.call, cuda.error.code, cuda.error.name) == (call, code, name)
    assert cuda.error.meaning
    assert (cuda.library_version, cuda.compat) == (version, compat)
    assert not cuda.started


def test_a_full_gpu_could_not_be_tried_and_is_no_fault() -> None:
    cuda = tried("cuda, memory held")
    assert cuda.started
    with pytest.raises(Unreadable, match="no memory left for a trial of CUDA"):
        _ = cuda.devices[0].fault


def test_the_login_s_own_limit_is_reported_and_not_obeyed() -> None:
    cuda = tried("cuda, limited login")
    assert cuda.environment == {"CUDA_VISIBLE_DEVICES": ""}
    assert len(cuda.devices) == 1


def test_what_was_not_tried_is_unreadable() -> None:
    reason = "nvidia_uvm is not loaded, and trying CUDA would load it"
    said: dict[str, object] = {"library": "", "skipped": reason, "error": None, "devices": [], "environment": {}}
    cuda = Cuda.parse(evidence({CUDA: said}))
    assert not cuda.started
    for name in ("error", "devices", "library"):
        with pytest.raises(Unreadable, match="nvidia_uvm is not loaded"):
            getattr(cuda, name)


def test_a_hang_is_an_error() -> None:
    cuda = Cuda.parse(evidence({CUDA: Answer(failure="timeout", reason="no answer within 27 s")}))
    assert cuda.error is not None
    assert cuda.error.code == HUNG
    said = {"devices": [], "error": {"call": "cuInit", "code": -1, "name": "hung"}}
    assert str(Cuda.parse(evidence({CUDA: said})).error) == "cuInit: hung"


values = st.none() | st.integers() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)


@given(
    st.dictionaries(st.sampled_from([*H200["cuda"], "x"]), values | st.lists(st.dictionaries(st.text(), values))),
    values,
)
def test_no_answer_makes_the_parser_raise(changes: dict[str, Any], text: Any) -> None:
    cuda = Cuda.parse(evidence({CUDA: {**H200["cuda"], **changes}}))
    for name in ("error", "devices", "library", "environment", "started", "asked_on"):
        with contextlib.suppress(Unreadable):
            getattr(cuda, name)
