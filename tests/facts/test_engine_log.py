"""The known errors of engines: each is found in what a program really said, and none in what a healthy one logs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.facts import messages

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
    "allocator-without-nvml": "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp:1131",
    "host-memory-refused": "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 16 bytes",
    "triton-backend-missing": "Invalid argument: unable to find backend library 'vllm' for model 'llm', try",
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
    "sequences-exceed-states": "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (120).",
    "items-per-request": "ValueError: At most 1 image(s) may be provided in one prompt.",
    "mount-source-missing": 'invalid mount config for type "bind": bind source path does not exist: /srv/m',
    "vocabulary-not-downloaded": "openai_harmony.HarmonyError: error downloading or loading vocab file",
    "sinks-not-supported": "AssertionError: Sinks are only supported in FlashAttention 3",
    "user-unknown": "vllm: getpass.py: KeyError: 'getpwuid(): uid not found: 1000680000'",
    "port-from-service": "ValueError: VLLM_PORT 'tcp://10.96.3.7:8000' appears to be a URI.",
    "transformers-of-other-age": (
        "vllm serve: transformers: AttributeError: 'LlamaTokenizerFast' object has no attribute 'vocab_words'"
    ),
    "wants-own-code": "ValueError: The repository org/m contains custom code which must be executed to load it",
    "installation-mixed": "ImportError: /opt/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab",
    "compiler-missing": "RuntimeError: Failed to find C compiler. Please specify via CC (triton)",
    "batch-smaller-than-context": "max_num_batched_tokens (2048) is smaller than max_model_len (8192). This",
    "quantization-does-not-fit": "Quantization method specified in the model config (awq) does not match the "
    "quantization method specified in the `quantization` argument (gptq).",
    "argument-refused": "api_server.py: error: argument --dtype: invalid choice: 'fp16'",
    "too-many-open-files": "OSError: [Errno 24] Too many open files",
    "nccl-gpu-twice": "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 41000",
    "nccl-no-interface": "NCCL WARN Bootstrap : no socket interface found",
    "nccl-memory-not-locked": "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    "kernels-not-compiled": "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "kernel-wants-larger-gpu": "out of resource: shared memory, Required: 98304, Hardware limit: 65536.",
    "triton-assembler-too-old": "Command '/bin/ptxas --gpu-name=sm_120 x.ptx' returned non-zero exit status 255.",
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


@given(st.lists(st.text()), st.sampled_from(sorted(SAID)))
def test_what_is_found_in_any_text_stands_in_it(around: list[str], name: str) -> None:
    text = "\n".join([*around, SAID[name]])
    found = messages.find(text)
    assert found
    assert all(match.line in text for match in found)
