"""What Docker and real engines said becomes typed engines; known error texts are found in what programs print."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts import messages
from lpxdoctor.facts.container import DOCKER
from lpxdoctor.facts.docker_inspect import gpu_requests, words
from lpxdoctor.facts.engine import Engines, Reply, engine
from lpxdoctor.programs import _docker, _engines
from tests.facts.builders_container import answer
from tests.facts.builders_engine import COLLECTED_AT, RECORDED, healthy_engine, recorded
from tests.facts.given import evidence


def test_an_engine_that_serves() -> None:
    found = recorded("ok")
    assert found.up
    assert not found.fails
    assert found.guarded
    assert found.served == ("tiny",)
    assert found.model == "/model"
    assert found.option("--max-model-len") == "1024"
    assert found.has("--enforce-eager")
    assert found.environment["VLLM_API_KEY"] == "***"
    assert found.environment["OMP_NUM_THREADS"] == "1"
    assert found.published == (("127.0.0.1", "18444"),)
    assert found.exposed == ()
    assert not found.wants_gpu
    assert not found.pinned
    assert found.digests == ()
    assert (found.up_s or 0) > 100
    assert "sk-test" not in json.dumps(RECORDED)


@pytest.mark.parametrize(
    ("name", "cause", "values"),
    [
        ("nomodel", "model-not-found", {"model": "/models/nothing-here"}),
        ("badarg", "argument-unknown", {"arguments": "--no-such-flag"}),
        ("context", "context-longer-than-model", {"asked": "1024000"}),
        ("port", "port-in-use", {"port": "18444"}),
        ("gpus", "gpu-hook-unknown", {}),
    ],
)
def test_an_engine_that_ended_says_why(name: str, cause: str, values: dict[str, str]) -> None:
    found = recorded(name)
    assert found.fails
    assert not found.stopped
    assert found.cause is not None
    assert found.cause.name == cause
    assert found.cause.values == values
    assert not found.unexplained


def test_a_killed_engine_is_neither_stopped_nor_failed() -> None:
    found = recorded("oom")
    assert found.exit_code == 137
    assert not found.oom_killed  # Docker 20.10 did not notice
    assert found.killed
    assert not found.fails
    assert recorded("ok", status="exited", exit_code=143, up_s=None).stopped
    assert not recorded("ok", status="exited", exit_code=0, oom_killed=True, up_s=None).stopped


def test_a_log_that_cannot_be_read_is_unknown() -> None:
    raw = {**RECORDED["nomodel"], "log": None, "log_reason": "configured logging driver does not support reading"}
    found = engine(raw, COLLECTED_AT)
    assert found.unexplained
    assert "does not support reading" in found.last_lines[0]
    with pytest.raises(Unreadable, match="does not support reading"):
        assert found.cause


def test_an_engine_that_does_not_say_its_model_is_unknown() -> None:
    with pytest.raises(Unreadable, match="401"):
        assert recorded("ok", replies={"/v1/models": Reply(401, '{"error":"Unauthorized"}')}).served
    with pytest.raises(Unreadable, match="no list of models"):
        assert recorded("ok", replies={"/v1/models": Reply(200, "<html>")}).served


def test_where_an_engine_can_be_reached() -> None:
    assert healthy_engine(published=(("0.0.0.0", "8000"), ("127.0.0.1", "8001"))).exposed == ("0.0.0.0:8000",)
    on_host = healthy_engine(network="host", published=())
    assert on_host.exposed == ("0.0.0.0:8000",)
    assert replace(on_host, command=(*on_host.command, "--host", "127.0.0.1")).exposed == ()


def test_how_many_gpus_an_engine_uses() -> None:
    assert healthy_engine(command=("vllm", "serve", "m", "-tp", "4", "--pipeline-parallel-size=2")).ranks == 8
    assert healthy_engine(command=("vllm", "serve", "m", "-tp")).ranks == 1


def test_the_words_of_a_command_in_a_shell() -> None:
    command = ("bash", "-c", "vllm serve org/model --port 8000")
    assert tuple(words(command)) == ("bash", "-c", "vllm", "serve", "org/model", "--port", "8000")
    assert tuple(words(("sh", "-c", "exec vllm serve 'half --x"))) == ("sh", "-c", "exec vllm serve 'half --x")
    assert healthy_engine(command=tuple(words(command))).model == "org/model"


def test_how_a_container_asks_for_gpus() -> None:
    def asks(**host: Any) -> list[str]:
        return list(gpu_requests({"DeviceRequests": None, "Runtime": "runc", "Devices": None, **host}))

    assert asks() == []
    assert asks(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]) == ["cdi"]
    assert asks(DeviceRequests=[{"Driver": "cdi", "DeviceIDs": ["vendor.com/net=0"]}]) == []
    assert asks(DeviceRequests=[{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}], Runtime="nvidia") == [
        "gpus",
        "runtime",
    ]
    assert asks(Devices=[{"PathOnHost": "/dev/nvidia0"}]) == ["device"]


def test_engines_of_a_docker() -> None:
    raw = {**answer(), "engines": [RECORDED["ok"], RECORDED["oom"]]}
    assert [each.name for each in Engines.parse(evidence({DOCKER: raw})).engines] == ["engine-ok", "engine-oom"]
    nobody = {"server": "", "failure": "absent", "reason": "no such file"}
    assert Engines.parse(evidence({DOCKER: nobody})).engines == ()
    for unknown in (
        {"server": "", "failure": "denied", "reason": "Permission denied"},
        {**answer(), "engines": None, "engines_reason": "Permission denied"},
        {**answer(), "engines": [{"id": "x", "failure": "Permission denied"}]},
    ):
        with pytest.raises(Unreadable, match="Permission denied"):
            assert Engines.parse(evidence({DOCKER: unknown})).engines


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_odd_answers_become_unreadable(value: Any) -> None:
    Engines.parse(evidence({DOCKER: value}))
    Engines.parse(evidence({DOCKER: {**answer(), "engines": [{**RECORDED["ok"], "state": value}]}}))


# --- what the program drops on the host -------------------------------------------------------------------------------


def test_secrets_do_not_leave_the_host() -> None:
    config = {
        "Env": ["VLLM_API_KEY=sk-1234567", "HF_TOKEN=hf_aaaa", "TOKENIZERS_PARALLELISM=false", "DB=postgres://u:p@h"],
        "Cmd": [
            "--model",
            "m",
            "--api-key",
            "first-key",
            "second-key",
            "--ssl-keyfile",
            "/etc/ssl/key.pem",
            "--port=1",
        ],
        "Entrypoint": ["vllm", "serve"],
    }
    secrets = _engines.secrets_of(config)
    assert set(secrets) == {"sk-1234567", "hf_aaaa", "first-key", "second-key"}
    hidden = _engines.without(secrets, {"log": "key sk-1234567", "argv": config["Cmd"]})
    assert hidden["log"] == "key ***"
    assert hidden["argv"] == [
        "--model",
        "m",
        "--api-key",
        "***",
        "***",
        "--ssl-keyfile",
        "/etc/ssl/key.pem",
        "--port=1",
    ]
    assert _engines.environment(config) == {
        "VLLM_API_KEY": "***",
        "HF_TOKEN": "***",
        "TOKENIZERS_PARALLELISM": "***",
        "DB": "***",
    }


def test_docker_frames_and_http_chunks() -> None:
    framed = b"\x01\x00\x00\x00\x00\x00\x00\x03out\x02\x00\x00\x00\x00\x00\x00\x04err\n"
    assert _engines.unframed(framed) == b"outerr\n"
    assert _docker.unchunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n") == b"abcde"
    assert _docker.unchunked(b"") == b""


# --- known error texts ------------------------------------------------------------------------------------------------

SAID = {
    "library-mismatch": "Failed to initialize NVML: Driver/library version mismatch",
    "driver-not-loaded": "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    "fabric-not-ready": "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    "compat-library-shadows-driver": "Error 803: system has unsupported display driver / cuda driver combination",
    "forward-compatibility-refused": "Error 804: forward compatibility was attempted on non supported HW",
    "driver-too-old": "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update",
    "cdi-off": 'Error response from daemon: could not select device driver "cdi" with capabilities: [].',
    "gpu-hook-unknown": 'docker: Error: could not select device driver "" with capabilities: [[gpu]].',
    "runtime-unknown": "Error response from daemon: Unknown runtime specified nvidia.",
    "toolkit-program-missing": 'exec: "nvidia-container-runtime": executable file not found in $PATH: unknown',
    "cdi-vendor-unknown": "failed to discover GPU vendor from CDI: no known GPU vendor found",
    "cdi-device-unknown": "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
    "cdi-path-missing": 'failed to stat CDI host device "/dev/nvidia3": no such file or directory',
    "driver-library-hidden": "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object",
    "cgroup-denied": "nvidia-container-cli: mount error: open failed: /sys/fs/cgroup/devices.allow: permission denied",
    "device-filter-refused": "failed to add device rules: unable to generate new device filter program from existing",
    "ldconfig-missing": "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file",
    "gpu-lost-by-container": "Failed to initialize NVML: Unknown Error",
    "gpu-denied": "Failed to initialize NVML: Insufficient Permissions",
    "no-gpu-in-container": "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
    "no-kernel-image": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "number-format-unsupported": "Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
    "more-ranks-than-gpus": "World size (4) is larger than the number of available GPUs (1)",
    "heads-not-divisible": "Total number of attention heads (28) must be divisible by tensor parallel size (8).",
    "shared-memory-too-small": "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1 (size 7340384)",
    "memory-held-by-others": "Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU",
    "context-exceeds-kv-cache": "To serve at least one request with the model's max seq len (262144), (24.0 GiB KV",
    "no-kv-cache-memory": "ValueError: No available memory for the cache blocks. Try increasing",
    "out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB.",
    "model-gated": "Cannot access gated repo for url https://huggingface.co/api/models/x.",
    "model-not-found": "OSError: Incorrect path_or_model_id: '/data1/models/x'. Please provide",
    "hub-unreachable": "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    "port-in-use": "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    "context-longer-than-model": "User-specified max_model_len (9999) is greater than the derived max_model_len (2048)",
    "argument-unknown": "vllm: error: unrecognized arguments: serve",
    "architecture-unknown": "Model architectures ['NewForCausalLM'] are not supported for now. Supported",
    "tokenizer-class-unknown": "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently "
    "imported.",
    "architecture-not-inspected": "ERROR registry.py:272] Error in inspecting model architecture 'LlamaForCausalLM'",
    "weights-do-not-fit": "KeyError: 'layers.0.mlp.down_proj.weight_scale'",
    "lora-rank-too-large": "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
    "disk-full": "OSError: [Errno 28] No space left on device",
    "nccl-failed": "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error",
    "forked-after-cuda": "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with",
    "nvml-not-on-jetson": "pynvml.NVMLError_NotSupported: Not Supported (Jetson AGX Orin, L4T 36.4)",
    "ptx-too-new": "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    "gpu-id-unknown": "nvidia-container-cli: device error: GPU-1f2e: unknown device: unknown",
    "image-of-other-architecture": "exec /usr/bin/python3: exec format error",
    "mig-uuid-not-understood": "ValueError: invalid literal for int() with base 10: 'MIG-3aa1'",
    "kernel-fault": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "weights-broken": "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    "directory-closed": "PermissionError: [Errno 13] Permission denied: '/root/.cache/huggingface/hub'",
    "wants-own-code": "ValueError: The repository org/m contains custom code which must be executed to load it",
    "installation-mixed": "ImportError: /opt/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab",
    "compiler-missing": "RuntimeError: Failed to find C compiler. Please specify via CC (triton)",
    "batch-smaller-than-context": "max_num_batched_tokens (2048) is smaller than max_model_len (8192). This",
    "quantization-does-not-fit": "Quantization method specified in the model config (awq) does not match the "
    "quantization method specified in the `quantization` argument (gptq).",
    "argument-refused": "api_server.py: error: argument --dtype: invalid choice: 'fp16'",
    "too-many-open-files": "OSError: [Errno 24] Too many open files",
    "nccl-no-interface": "NCCL WARN Bootstrap : no socket interface found",
    "nccl-memory-not-locked": "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    "kernels-not-compiled": "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "kernel-wants-larger-gpu": "out of resource: shared memory, Required: 98304, Hardware limit: 65536.",
    "nccl-multicast": "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
    "peer-access-refused": "RuntimeError: CUDA error: peer access is not supported between these two devices",
}


def test_every_known_error_is_found_in_what_a_program_said() -> None:
    assert SAID.keys() == {known.name for known in messages.table() if known.engine}
    for name, line in SAID.items():
        first = messages.find(f"(EngineCore pid=1) INFO before\n{line}\nafter")[0]
        assert first.name == name
        assert first.line == line
        assert not re.search(r"[{}]", first.meaning)


@pytest.mark.parametrize(
    "line",
    [
        # What a healthy engine logs when it has measured its memory.
        "Free memory on device (31.44/47.38 GiB) on startup. Desired GPU memory utilization is (0.9, 42.6 GiB).",
        "INFO:     Application startup complete.",
        "GPU KV cache size: 150,745 tokens, Maximum concurrency for 124,000 tokens per request: 1.22x",
        "ERROR 8021 requests, 8030 tokens",
    ],
)
def test_what_a_healthy_engine_logs_is_no_error(line: str) -> None:
    assert messages.find(line) == ()


def test_the_values_in_a_message() -> None:
    text = (
        "To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated "
        "maximum model length is 34736. Try increasing"
    )
    assert messages.find(text)[0].values == {"asked": "262144", "room": "3.18", "possible": "34736"}
    held = messages.find(SAID["memory-held-by-others"])[0]
    assert "31.44 of 47.38 GiB are free" in held.meaning


@given(st.text())
def test_any_text_can_be_searched(text: str) -> None:
    assert all(match.line in text or match.line for match in messages.find(text))
