"""Checks of what only a person can tell, and those that came with reading texts: each fires, and each is silent."""

import contextlib
from dataclasses import replace

import pytest

from lpxdoctor.check import Finding, NotApplicable, Severity
from lpxdoctor.evidence import Evidence
from lpxdoctor.facts import symptoms
from lpxdoctor.facts.cuda import CudaError
from lpxdoctor.facts.driver_log import Complaint
from lpxdoctor.facts.symptoms import Symptoms
from tests.checks.judging import by_id, found
from tests.facts.builders_container import OLDER, healthy, live, trial
from tests.facts.builders_cuda import tried
from tests.facts.builders_driver import healthy_driver
from tests.facts.builders_gpu import healthy_gpus, pci_gpu
from tests.facts.builders_host import healthy_host

# What a person says -> the check that has the answer. Two ways to say it, one of them not in English.
TOLD: dict[str, tuple[str, str]] = {
    "decode.first-token-slow": ("our TTFT is far too high since Monday", "首 token 很慢 要等十几秒"),
    "decode.next-tokens-slow": ("the decoding is slow, about 9 per second", "后续 token 慢 生成速度慢"),
    "decode.memory-grows": ("GPU memory keeps growing until it dies", "显存不断增长"),
    "decode.gpu-underused": ("GPU utilization is only 20 % under load", "GPU 利用率低 上不去"),
    "decode.one-request-slow": ("one request is suddenly slow, others fine", "偶尔某次请求突然慢"),
    "decode.output-garbled": ("the output is garbled, just !!!!!!!", "输出乱码"),
    "decode.accuracy-lost": ("accuracy dropped a lot after int4 quantization", "量化后精度下降严重"),
    "decode.start-compiling": ("vllm is stuck at start, log says compiling", "引擎启动卡住 好像正在编译"),
    "decode.preempted": ("Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode, Waiting: 3 reqs", ""),
    "decode.request-too-long": (
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens",
        "",
    ),
    "decode.generate-loop": (
        "slow: I call model.generate(**inputs) in a loop, 3 tokens/s",
        "用默认的 generate 速度慢",
    ),
    "decode.weights-upcast": ("WARNING Casting torch.bfloat16 to torch.float32.", "权重被转成 FP32 计算"),
    "decode.logged-per-token": ("we log every token to disk and decode is slow", "每生成一个 token 都写日志 速度很慢"),
    "decode.shapes-recompiled": ("torch._dynamo hit config.recompile_limit (8)", "每次请求都会重新编译"),
    "decode.several-gpus-no-faster": ("two GPUs are not any faster than one", "双卡没有变快"),
    "decode.quantized-not-faster": ("the AWQ model is slower than fp16", "量化反而慢"),
    "decode.draft-does-not-fit": ("draft and target vocab_size differ, must match", ""),
    "decode.model-name-unknown": ("404: The model `gpt-4` does not exist.", ""),
    "decode.key-refused": ('INFO: 10.0.0.7:51516 - "GET /v1/models HTTP/1.1" 401 Unauthorized', ""),
    "decode.chat-template-missing": ("default chat template is no longer allowed, so you must provide one", ""),
    "driver.installer-held-up": ("ERROR: You appear to be running an X server; please exit X before installing.", ""),
    "driver.wsl-gpu-blocked": ("WSL2: Failed to initialize NVML: GPU access blocked by the operating system", ""),
    "driver.windows-installer-error": (
        "NVIDIA installer failed with 0xe6000000 on Windows 11",
        "安装程序报错 0xe6000000",
    ),
    "driver.windows-shader-cache": (r"shall I empty AppData\Local\NVIDIA\DXCache ?", ""),
    "driver.windows-d3d11-warning": (
        "this driver version has known issues in D3D11",
        "图形驱动程序版本在 D3D11 中存在已知问题",
    ),
    "driver.vgpu-unlicensed": ("vGPU Software License: License Status : Unlicensed (Restricted)", ""),
    "driver.repository-key-missing": (
        "W: GPG error: https://developer.download.nvidia.com/compute/cuda/repos NO_PUBKEY A4B469963BF863CC",
        "",
    ),
    "container.image-not-pulled": ("Error response from daemon: manifest for vllm/vllm-openai:v9 not found", ""),
}


def told(text: str | None) -> Symptoms:
    return Symptoms.parse(Evidence("h", {} if text is None else {symptoms.KEY: symptoms.answer(text)}))


@pytest.mark.parametrize("check_id", TOLD)
def test_a_symptom_that_is_told_is_explained(check_id: str) -> None:
    for words in filter(None, TOLD[check_id]):
        finding = found(check_id, told(words))[0]
        assert finding.seen[0].value == words
        assert finding.message


@pytest.mark.parametrize("check_id", TOLD)
def test_nothing_is_made_up_where_nothing_or_something_else_was_told(check_id: str) -> None:
    assert found(check_id, told("all is well, thank you")) == []
    with pytest.raises(NotApplicable, match="--symptom"):
        found(check_id, told(None))


def test_every_check_of_decoding_is_tested() -> None:
    assert {check_id for check_id in by_id() if check_id.startswith("decode.")} <= TOLD.keys()
    assert all(by_id()[check_id].severity is not Severity.FAIL for check_id in TOLD)


# --- the machine and its GPUs -----------------------------------------------------------------------------------------

XID_119 = "[ 90.1] NVRM: Xid (PCI:0000:01:00): 119, pid=77, name=python3, Timeout after 45s of waiting for RPC response"
RPC = "[ 90.1] NVRM: _kgspRpcRecvPoll: Timeout waiting for RPC from GSP!"


@pytest.mark.parametrize(
    ("line", "words"), [(XID_119, "Xid 119 on 0000:01:00, 1 times"), (RPC, "waited for it in vain")]
)
def test_a_gpus_silent_firmware_is_named(line: str, words: str) -> None:
    assert found("gpu.gsp-timeout", healthy_host(kernel_log=(line,)))[0].message.endswith(words)


def test_firmware_that_falls_silent_behind_a_failed_nvlink_follows_from_that() -> None:
    link = "[ 80.0] NVRM: Xid (PCI:0000:02:00): 74, pid=77, name=python3, NVLink: fatal error detected on link 8(0x0)"
    assert found("gpu.gsp-timeout", healthy_host(kernel_log=(link, XID_119))) == []
    assert found("gpu.gsp-timeout", healthy_host(kernel_log=(XID_119, link))) != []


def test_other_xids_are_not_the_firmwares() -> None:
    other = XID_119.replace(" 119,", " 31,").replace("Timeout", "MMU fault")
    assert found("gpu.gsp-timeout", healthy_host(kernel_log=(other,))) == []


def bus_error(severity: str, address: str = "0000:00:01.0") -> str:
    return f"[ 5.0] pcieport {address}: PCIe Bus Error: severity={severity}, type=Transaction Layer, (Requester ID)"


def test_errors_of_the_bus_above_a_gpu_are_told_with_their_place() -> None:
    gpu = pci_gpu(above=("0000:00:01.0",))
    log = (bus_error("Uncorrectable (Non-Fatal)"), bus_error("Uncorrected (Non-Fatal)"))
    finding = found("host.pcie-errors", healthy_host(pci=(gpu,), kernel_log=log))[0]
    assert (finding.subject, finding.message) == ("0000:00:01.0", "0000:00:01.0: 2 errors")


@pytest.mark.parametrize("line", [bus_error("Corrected"), bus_error("Uncorrected (Fatal)", "0000:77:00.0")])
def test_corrected_errors_and_those_of_other_devices_are_not(line: str) -> None:
    gpu = pci_gpu(above=("0000:00:01.0",))
    assert found("host.pcie-errors", healthy_host(pci=(gpu,), kernel_log=(line,))) == []


MISSING = Complaint(
    "firmware missing", "nvidia 0000:01:00.0: Direct firmware load for nvidia/x/gsp_ga10x.bin failed", ""
)


def test_firmware_of_another_version_is_none() -> None:
    driver = healthy_driver(firmware=frozenset({"570.86.10"}), complaints=(MISSING,))
    assert found("driver.firmware-missing", driver)[0].message == "there is none of 580.95.05"


def test_firmware_that_is_there_or_that_nobody_missed_is_well() -> None:
    assert found("driver.firmware-missing", healthy_driver(complaints=(MISSING,))) == []
    assert found("driver.firmware-missing", healthy_driver(firmware=frozenset[str]())) == []


# --- CUDA and containers ----------------------------------------------------------------------------------------------


def test_cuda_that_is_not_initialised_while_nvml_works_is_hmm() -> None:
    broken = tried(error=CudaError("cuInit", 3, "CUDA_ERROR_NOT_INITIALIZED"), devices=())
    finding = found("cuda.hmm-breaks-init", broken, healthy_gpus(), healthy_host(kernel="5.14.0-570.el9"))[0]
    assert finding.message == "cuInit ends with error 3 on kernel 5.14.0-570.el9, while NVML works"


def test_cuda_that_works_or_fails_in_another_way_is_not() -> None:
    other = tried(error=CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN"), devices=())
    for cuda in (tried(), other):
        assert found("cuda.hmm-breaks-init", cuda, healthy_gpus(), healthy_host()) == []


def refused(path: str, words: str) -> dict[str, object]:
    return {"trials": (trial(path, stage="create", refusal=words, answered=False, uuids=()),)}


NO_CDI = 'could not select device driver "cdi" with capabilities: []'
NO_LDCONFIG = "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory"
NO_CGROUP = "nvidia-container-cli: container error: cgroup subsystem devices not found: unknown"


def judged(check_id: str, **changes: object) -> list[Finding]:
    with contextlib.suppress(NotApplicable):
        return found(check_id, healthy(**changes))
    return []


def test_a_docker_without_cdi_that_is_asked_for_a_cdi_device() -> None:
    off = live(OLDER, cdi_dirs=())
    assert judged("container.cdi-off", daemon=off, **refused("CDI", NO_CDI))[0].seen[1].value == "20.10.24+dfsg1"
    assert judged("container.cdi-off", daemon=off, specs=(), **refused("CDI", NO_CDI)) == []  # nobody wrote one
    assert judged("container.cdi-off") == []


def test_an_ldconfig_that_is_not_there() -> None:
    assert "/sbin/ldconfig.real" in judged("container.ldconfig-missing", **refused("--gpus", NO_LDCONFIG))[0].message
    assert judged("container.ldconfig-missing", **refused("--gpus", "something else")) == []
    assert judged("container.ldconfig-missing") == []


def test_a_toolkit_from_before_this_hosts_cgroups() -> None:
    assert judged("container.toolkit-before-cgroups", **refused("--gpus", NO_CGROUP))
    assert judged("container.toolkit-before-cgroups") == []
    first = live(OLDER, cgroup_version="1", cdi_dirs=())
    assert judged("container.toolkit-before-cgroups", daemon=first, **refused("--gpus", "other")) == []


def test_a_works_trial_silences_them_all() -> None:
    mixed = (trial("CDI"), replace(trial("--gpus"), stage="create", refusal=NO_CGROUP, answered=False, uuids=()))
    for check_id in ("container.cdi-off", "container.ldconfig-missing", "container.toolkit-before-cgroups"):
        assert judged(check_id, trials=mixed) == []
