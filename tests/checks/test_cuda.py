"""CUDA on the host is judged by what it answered, and each wrong library is its own cause."""

from dataclasses import replace

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.cuda import CudaDevice, CudaError
from lpxdoctor.facts.nvml import Process
from tests.checks.judging import by_id, found
from tests.facts.builders_cuda import tried
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus

FINE = ("cuda.library-is-stub", "cuda.library-not-the-drivers", "cuda.init-fails", "cuda.compute-fails")
ALL = (*FINE, "cuda.devices-fewer", "cuda.visible-devices-set")


def failing(code: int, name: str, call: str = "cuInit") -> CudaError:
    return CudaError(call, code, name)


@pytest.mark.parametrize("check_id", ALL)
def test_silent_on_the_real_h200(check_id: str) -> None:
    assert found(check_id, tried(), healthy_gpus()) == []


def test_the_stub_library_is_the_cause_and_not_the_version() -> None:
    (finding,) = found("cuda.library-is-stub", tried("cuda, stub"))
    assert finding.seen[0].value == "/tmp/stub/libcuda.so.1"
    assert found("cuda.library-not-the-drivers", tried("cuda, stub"), healthy_gpus()) == []


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("cuda of an older library", "libcuda 535.261.03 over driver 580.159.04"),
        ("cuda, compat library", "the compat library 580.95.05 over driver 580.159.04"),
    ],
)
def test_a_library_of_another_driver_is_named_with_both_versions(case: str, words: str) -> None:
    (finding,) = found("cuda.library-not-the-drivers", tried(case), healthy_gpus())
    assert finding.message == words
    assert "803" in finding.seen[2].value


def test_a_newer_compat_library_that_works_is_no_failure() -> None:
    forward = replace(tried(), library="/usr/local/cuda/compat/libcuda.so.590.48.01")
    assert found("cuda.library-not-the-drivers", forward, healthy_gpus()) == []


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (100, "CUDA_ERROR_NO_DEVICE", "no GPU is visible to CUDA"),
        (101, "CUDA_ERROR_INVALID_DEVICE", "could not bring up"),
        (3, "CUDA_ERROR_NOT_INITIALIZED", "nvidia_uvm"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "NVSwitch fabric"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility"),
        (999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        (-3, "libcuda.so.1: cannot open shared object file", "libcuda.so.1 was not found"),
        (-1, "hung", "hung"),
        (4711, "CUDA_ERROR_OF_TOMORROW", "CUDA_ERROR_OF_TOMORROW (4711)"),
    ],
)
def test_each_error_of_the_start_has_its_meaning(code: int, name: str, words: str) -> None:
    (finding,) = found("cuda.init-fails", replace(tried(), error=failing(code, name)))
    assert words in finding.message


def test_a_trial_that_would_have_loaded_a_module_is_unknown() -> None:
    reason = Unreadable("CUDA was not tried: nvidia_uvm is not loaded, and trying CUDA would load it")
    with pytest.raises(Unreadable, match="nvidia_uvm"):
        found("cuda.init-fails", tried(error=reason))


def test_a_gpu_that_does_not_compute_and_one_that_computes_wrongly() -> None:
    (good,) = tried().devices
    bad = replace(good, uuid="GPU-x", error=failing(214, "CUDA_ERROR_ECC_UNCORRECTABLE", "cuCtxSynchronize"))
    (finding,) = found("cuda.compute-fails", replace(tried(), devices=(good, bad)), healthy_gpus())
    assert finding.subject == "CUDA device 1"
    assert "uncorrectable memory error" in finding.message
    wrong = replace(good, error=failing(0, "the kernel's numbers are wrong", "compare"))
    (finding,) = found("cuda.compute-fails", replace(tried(), devices=(wrong,)), healthy_gpus())
    assert "numbers are wrong" in finding.message


def test_a_full_gpu_is_unknown_and_an_exclusive_one_in_use_is_well() -> None:
    with pytest.raises(Unreadable, match="no memory left"):
        found("cuda.compute-fails", tried("cuda, memory held"), healthy_gpus())
    serving = healthy_gpu(compute_mode="exclusive-process", processes=healthy_gpu().processes)
    busy = CudaDevice(serving.uuid, "NVIDIA H200", "9.0", failing(46, "CUDA_ERROR_DEVICE_UNAVAILABLE"))
    held = replace(tried(), devices=(busy,))
    assert len(found("cuda.compute-fails", held, healthy_gpus(serving))) == 1  # nobody is shown to hold it
    engine = Process(900, "compute", "VLLM::EngineCor", "VLLM::EngineCore", 130_000)
    assert found("cuda.compute-fails", held, healthy_gpus(replace(serving, processes=(engine,)))) == []


def test_fewer_devices_than_gpus_name_the_missing_one() -> None:
    first = healthy_gpu(0, uuid=tried().devices[0].uuid)
    (finding,) = found("cuda.devices-fewer", tried(), healthy_gpus(first, healthy_gpu(1)))
    assert finding.message == "CUDA finds 1 of 2 GPUs"
    assert finding.seen[-1].value == "GPU 1"
    with pytest.raises(NotApplicable, match="MIG"):
        found("cuda.devices-fewer", tried(), healthy_gpus(first, healthy_gpu(1, mig=(True, True))))


def test_the_login_s_own_limit_is_told() -> None:
    (finding,) = found("cuda.visible-devices-set", tried("cuda, limited login"))
    assert "CUDA_VISIBLE_DEVICES is ''" in finding.message


def test_every_check_of_cuda_on_the_host_is_tested_here() -> None:
    here = {check_id for check_id, check in by_id().items() if check.function.__module__ == "lpxdoctor_checks_cuda"}
    assert here == set(ALL)
