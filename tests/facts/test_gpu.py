"""NVML's answers, real and broken, become GPUs that know what they are and what they could not say."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Unreadable
from lpxdoctor.facts.gpu import NVML, Gpu, Gpus, gpu
from lpxdoctor.facts.nvml import Reason
from tests.facts.builders_gpu import healthy_gpu
from tests.facts.given import H200, evidence


def parsed(answer: Any) -> Gpus:
    return Gpus.parse(evidence({NVML: answer}))


def test_a_real_h200_is_read_whole() -> None:
    gpus = parsed(H200["nvml"])
    assert gpus.error is None
    assert (gpus.driver_version, gpus.cuda_version) == ("580.159.04", "13.0")
    (one,) = gpus.working
    assert (one.name, one.bus_id, one.compute_capability, one.kind) == (
        "NVIDIA H200",
        "0000:00:06.0",
        "9.0",
        "data-center",
    )
    assert one.memory_total_mib == 143771
    assert one.ecc == (True, True)
    assert (one.ecc_corrected, one.ecc_uncorrected, one.ecc_uncorrected_ever) == (0, 0, 0)
    assert one.remaps is not None
    assert not one.remaps.pending
    assert one.mig == (False, False)
    assert one.retired_pages is None  # it remaps rows instead
    assert one.nvlinks == ()  # a guest with one GPU of the board
    assert one.fabric is not None
    assert one.fabric.state == 0
    assert one.inforom_valid is True
    assert one.reasons == Reason.IDLE
    assert one.others == ()


def test_a_gpu_under_load_is_held_by_its_power_cap_alone() -> None:
    (one,) = parsed(H200["nvml under load"]).gpus
    assert one.reasons == Reason.POWER_CAP
    assert one.utilization_percent == 100


def test_who_holds_the_memory_is_named() -> None:
    (one,) = parsed(H200["nvml, memory held"]).gpus
    (process,) = one.holders
    assert str(process) == "python3 (pid 527, 142948 MiB)"
    assert one.memory_held_mib > 140_000


def test_our_own_trial_of_cuda_is_nobody_elses() -> None:
    raw = {**H200["nvml"]["gpus"][0]}
    ours = {"pid": 7, "kind": "compute", "comm": "python3", "cmdline": "python3 /x/probe/cuda.py", "memory_mib": 500}
    raw["memory_mib"] = {"total": 143771, "free": 143000, "used": 600}
    raw["processes"] = [ours]
    one = gpu(raw)
    assert one.others == ()
    assert one.memory_held_mib == 100
    with pytest.raises(Unreadable, match="shows no process that holds them"):
        _ = one.holders


def test_libraries_of_another_version_are_an_error_with_its_name() -> None:
    gpus = parsed(H200["nvml of an older library"])
    assert gpus.error is not None
    assert (gpus.error.call, gpus.error.code, gpus.error.name) == ("nvmlInit_v2", 18, "LIB_RM_VERSION_MISMATCH")
    with pytest.raises(Unreadable, match="LIB_RM_VERSION_MISMATCH"):
        _ = gpus.gpus
    with pytest.raises(Unreadable, match="before it told its driver version"):
        _ = gpus.driver_version


def test_a_call_that_hangs_is_an_error_and_not_an_unknown() -> None:
    said = {**H200["nvml"], "gpus": [], "error": {"call": "nvmlDeviceGetTemperature of GPU 3", "code": -1}}
    assert str(parsed(said).error) == "nvmlDeviceGetTemperature of GPU 3: HUNG"
    assert str(parsed({**said, "error": {"call": "nvmlInit_v2", "code": -2}}).error) == "nvmlInit_v2: CRASHED"
    silent = parsed(Answer(failure="timeout", reason="no answer within 27 s"))
    assert silent.error is not None
    assert silent.error.name == "HUNG"


def test_what_could_not_be_asked_is_unreadable_and_not_empty() -> None:
    gpus = parsed(Answer(failure="failed", reason="exit 1, no JSON printed: this Python has no pynvml"))
    for name in ("error", "gpus", "driver_version", "library"):
        with pytest.raises(Unreadable, match="no pynvml"):
            getattr(gpus, name)


def test_a_lost_gpu_and_one_without_power_are_told_apart() -> None:
    raw = H200["nvml"]["gpus"][0]
    lost, dead = gpu({**raw, "temperature_c": {"error": 15}}), gpu({"index": 1, "error": 8})
    assert lost.lost
    assert not dead.lost
    assert dead.error is not None
    assert dead.error.name == "INSUFFICIENT_POWER"
    view = replace(parsed(H200["nvml"]), gpus=(lost, dead, healthy_gpu(2)))
    assert [one.index for one in view.working] == [2]
    with pytest.raises(Unreadable, match="INSUFFICIENT_POWER"):
        _ = dead.name


def test_a_refused_reading_says_why_and_an_absent_one_is_none() -> None:
    one = gpu({**H200["nvml"]["gpus"][0], "ecc_errors": {"error": 4}, "power_w": None})
    with pytest.raises(Unreadable, match="NVML's ecc_errors: NO_PERMISSION"):
        _ = one.ecc_uncorrected
    assert one.power_w is None


@pytest.mark.parametrize(
    ("device", "brand", "kind"),
    [
        (0x2684, "geforce", "geforce"),
        (0xFFFF, "geforce_rtx", "geforce"),
        (0xFFFF, "tesla", "data-center"),
        (0xFFFF, "x", None),
    ],
)
def test_a_gpu_that_no_table_has_is_classed_by_its_brand(device: int, brand: str, kind: str | None) -> None:
    assert healthy_gpu(device_id=device, brand=brand).kind == kind


def test_old_drivers_that_lack_a_function_leave_that_reading_unknown() -> None:
    with pytest.raises(Unreadable, match="FUNCTION_NOT_FOUND"):
        _ = gpu({**H200["nvml"]["gpus"][0], "fabric": {"error": 13}}).fabric


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*H200["nvml"]["gpus"][0], "error"]), inner)
    ),
    max_leaves=8,
)


@given(json_values, st.dictionaries(st.sampled_from(sorted(H200["nvml"]["gpus"][0])), json_values))
def test_no_answer_makes_the_parser_raise(whole: Any, changes: dict[str, Any]) -> None:
    json.dumps(whole)
    for answer in (whole, {"error": whole}, {**H200["nvml"], "gpus": [{**H200["nvml"]["gpus"][0], **changes}]}):
        gpus = Gpus.parse(evidence({NVML: answer}))
        for name in ("error", "gpus", "driver_version"):
            try:
                value = getattr(gpus, name)
            except Unreadable:
                continue
            assert name != "gpus" or all(isinstance(one, Gpu) for one in value)
