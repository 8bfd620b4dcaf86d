"""What engines that do not run said before they ended in; the one cause that their last words name out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check, logged
from lpxdoctor.facts.engine import Engine, Engines

_FABRIC = ("fabric.manager-not-running", "fabric.not-completed")
_PASSTHROUGH = "container.gpu-not-visible"
# Docker refused to start the container, since it could not hand a GPU over in the way that was asked for.
_NOT_HANDED_OVER = (
    *("gpu-hook-unknown", "runtime-unknown", "toolkit-program-missing", "driver-library-hidden", "cgroup-denied"),
    *(
        "cdi-off",
        "cdi-vendor-unknown",
        "cdi-device-unknown",
        "cdi-path-missing",
        "device-filter-refused",
        "ldconfig-missing",
    ),
)

_NOT_TALKING = (
    *("nccl-failed", "nccl-no-interface", "nccl-gpu-twice", "nccl-memory-not-locked", "nccl-multicast"),
    "peer-access-refused",
)
_NO_CODE = ("no-kernel-image", "kernel-wants-larger-gpu", "triton-assembler-too-old", "sinks-not-supported")


def _option(engine: Engine, *names: str) -> Seen:
    return Seen(names[0], engine.option(*names) or "not given", f"docker inspect {engine.name}")


# --- the driver -------------------------------------------------------------------------------------------------------


@check("engine.fabric-not-ready", Severity.FAIL, layer="driver", after=[*_FABRIC, _PASSTHROUGH])
def fabric_not_ready(engines: Engines) -> Iterator[Finding]:
    """A program ended with CUDA error 802: the NVSwitch fabric is not up.

    Why: on a board with NVSwitches (SXM, HGX, DGX) no GPU computes until Fabric Manager, of the driver's very version,
        has set the switches up. nvidia-smi looks healthy all the while, and PCIe cards need none of it.
    Fix: install nvidia-fabricmanager of exactly the driver's version, hold both packages, and start it: sudo systemctl
        enable --now nvidia-fabricmanager. Boards from HGX B200 on need nvlsm and ib_umad too. Then nvidia-smi -q |
        grep -A3 Fabric must say Completed.
    Source: https://github.com/NVIDIA/gpu-operator/issues/2781; https://github.com/dstackai/dstack/issues/2348
    """
    for engine, cause in engines.ended("fabric-not-ready"):
        yield logged(engine, cause)


@check("engine.compat-library-shadows-driver", Severity.FAIL, layer="driver", after=[_PASSTHROUGH])
def compat_library_shadows_driver(engines: Engines) -> Iterator[Finding]:
    """An engine ended with CUDA error 803: it used the image's libcuda in place of the host's.

    Why: the image puts its compat directory (/usr/local/cuda/compat) on the loader's path. That libcuda is for hosts
        with an older driver; over a newer kernel module it refuses to work, while nvidia-smi is fine. On the host
        itself the same error comes after a driver upgrade without a reboot.
    Fix: give the host's library precedence: -e LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu, or /usr/local/nvidia/lib64
        where it is mounted there; or take an image in which the compat directory is an opt-in.
    Source: https://github.com/gpustack/gpustack/issues/4678; https://github.com/vllm-project/vllm/pull/33992
    """
    for engine, cause in engines.ended("compat-library-shadows-driver"):
        yield logged(
            engine,
            cause,
            Seen("image", engine.image),
            Seen("LD_LIBRARY_PATH", engine.environment.get("LD_LIBRARY_PATH", "not set")),
        )


@check("engine.driver-too-old", Severity.FAIL, layer="driver", after=[_PASSTHROUGH])
def driver_too_old(engines: Engines) -> Iterator[Finding]:
    """An engine's image needs a newer driver than this host has.

    Why: the driver is too old: the image's CUDA is newer than what it carries. Minor-version compatibility reaches over
        one major version of CUDA only, and forward compatibility (error 804) is for data-centre GPUs.
    Fix: upgrade the driver to one that carries the image's CUDA (nvidia-smi shows it), or take an image of an older
        CUDA: for vLLM the tag that ends in -cu129. NVIDIA_DISABLE_REQUIRE=1 only silences the question, and helps where
        the image's compat libraries serve this GPU.
    Source: https://github.com/vllm-project/vllm/issues/5635; https://github.com/vllm-project/vllm/issues/5510;
        https://docs.nvidia.com/deploy/cuda-compatibility/
    """
    for engine, cause in engines.ended("driver-too-old", "forward-compatibility-refused", "ptx-too-new"):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.driver-broken", Severity.FAIL, layer="driver", after=["driver.nvml-fails", _PASSTHROUGH])
def driver_broken(engines: Engines) -> Iterator[Finding]:
    """An engine found the host's driver not loaded, or of two versions.

    Why: what it saw was the host's driver at that moment. Where this host's driver is well now, it has been put right
        since, and the engine was not started again.
    Fix: docker restart the engine, once nvidia-smi works on the host.
    Source: https://github.com/saharmor/dalle-playground/issues/104
    """
    for engine, cause in engines.ended("library-mismatch", "driver-not-loaded"):
        yield logged(engine, cause, do=("nvidia-smi", f"docker restart {engine.name}"))


# --- how it got its GPUs ----------------------------------------------------------------------------------------------


@check("engine.started-without-gpu", Severity.FAIL, layer="deployment", after=[_PASSTHROUGH])
def started_without_gpu(engines: Engines) -> Iterator[Finding]:
    """An engine was started without a GPU.

    Why: Docker hands a GPU over only where it is asked to, and by a way that is set up on this host. Without one there
        is no libcuda in the container, and the engine cannot tell which device to use.
    Fix: recreate it with --device nvidia.com/gpu=all or --gpus all, whichever works here (see
        container.gpus-flag-fails); with an empty or wrong CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES it sees none
        either.
    Source: https://github.com/vllm-project/vllm/issues/27268
    """
    for engine, cause in engines.ended("no-gpu-in-container", *_NOT_HANDED_OVER):
        asked = Seen("asks for GPUs by", ", ".join(engine.gpu_requests) or "nothing", f"docker inspect {engine.name}")
        yield logged(engine, cause, asked)


@check("engine.lost-its-gpu", Severity.FAIL, layer="deployment", after=[_PASSTHROUGH])
def lost_its_gpu(engines: Engines) -> Iterator[Finding]:
    """An engine had a GPU and lost it while it ran.

    Why: systemd wrote the device cgroup of the container anew, as it does at a daemon-reload, and the GPU that the
        toolkit's hook had added is not among the rules. The host is fine all the while.
    Fix: restart the container, which brings the GPU back. For good: hand it over by CDI (--device nvidia.com/gpu=all),
        or pass each /dev/nvidia* node by --device; "native.cgroupdriver=cgroupfs" in daemon.json is the last resort.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    for engine, cause in engines.ended("gpu-lost-by-container", "gpu-denied"):
        yield logged(engine, cause, do=(f"docker restart {engine.name}",))


# --- what it asks of the GPU ------------------------------------------------------------------------------------------


@check("engine.no-code-for-gpu", Severity.FAIL, layer="engine", after=[_PASSTHROUGH])
def no_code_for_gpu(engines: Engines) -> Iterator[Finding]:
    """The engine's image has no code for this GPU.

    Why: kernels are compiled for the compute capabilities (sm_75 ... sm_120) that the image's makers chose. An older
        GPU was dropped from them, or a newer one is not yet in them. Neither driver nor memory is the reason.
    Fix: for a new GPU take a newer image, or a PyTorch and an engine whose wheels are built for it (Blackwell: CUDA
        12.8 and newer); for one below compute capability 7.5 one of vLLM 0.19 or older, and below 7.0 another engine.
    Source: https://github.com/vllm-project/vllm/issues/16307; https://github.com/vllm-project/vllm/issues/1936
    """
    for engine, cause in engines.ended(*_NO_CODE):
        yield logged(engine, cause, Seen("image", engine.image))


@check("engine.number-format-unsupported", Severity.FAIL, layer="engine")
def number_format_unsupported(engines: Engines) -> Iterator[Finding]:
    """The model asks for a number format that this GPU does not compute in.

    Why: bfloat16 came with compute capability 8.0 (Ampere), FP8 with 8.9 (Ada, Hopper), FP4 with Blackwell. Many models
        name bfloat16 as their format.
    Fix: --dtype half in place of bfloat16; for FP8 weights on an older GPU a model quantized otherwise (AWQ, GPTQ), or
        --kv-cache-dtype auto where only the cache asks for it.
    Source: https://github.com/vllm-project/vllm/issues/946;
        https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html
    """
    for engine, cause in engines.ended("number-format-unsupported"):
        yield logged(engine, cause, _option(engine, "--dtype"), _option(engine, "--quantization", "-q"))


@check("engine.split-impossible", Severity.FAIL, layer="engine")
def split_impossible(engines: Engines) -> Iterator[Finding]:
    """The engine is told to split the model over more GPUs than it sees, or in a way that the model does not allow.

    Why: with tensor parallelism each rank needs a GPU of its own, and attention heads are dealt out evenly: their
        number must be divisible by that of the ranks.
    Fix: set --tensor-parallel-size to a number that divides the heads and is no larger than the GPUs in the container.
    Source: https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html
    """
    for engine, cause in engines.ended("more-ranks-than-gpus", "heads-not-divisible"):
        yield logged(engine, cause, _option(engine, "--tensor-parallel-size", "-tp"))


@check("engine.shared-memory-ran-out", Severity.FAIL, layer="deployment")
def shared_memory_ran_out(engines: Engines) -> Iterator[Finding]:
    """An engine ended because /dev/shm in its container is too small.

    Why: with several GPUs the ranks exchange data there (NCCL), and Docker gives a container 64 MiB, as Kubernetes
        gives a pod.
    Fix: recreate it with --ipc=host, or with --shm-size=16g.
    Source: https://github.com/vllm-project/vllm/issues/1710; https://docs.vllm.ai/en/stable/deployment/docker/
    """
    for engine, cause in engines.ended("shared-memory-too-small"):
        size = Seen("/dev/shm", f"{engine.shm_bytes >> 20} MiB", f"docker inspect {engine.name}")  # noqa: S108
        yield logged(engine, cause, size, Seen("--ipc", engine.ipc))


@check("engine.gpus-do-not-talk", Severity.FAIL, layer="engine", after=["engine.shared-memory-ran-out"])
def gpus_do_not_talk(engines: Engines) -> Iterator[Finding]:
    """An engine ended because its GPUs could not talk to each other.

    Why: NCCL connects the ranks by NVLink, PCI Express, shared memory or the network. An IOMMU or access control (ACS)
        between two cards, a fabric that is not up, too little shared memory or the wrong network interface breaks it.
    Fix: start it once with -e NCCL_DEBUG=INFO and read the first line with WARN. NCCL_P2P_DISABLE=1 tells whether it is
        the way between the cards, NCCL_SOCKET_IFNAME names the interface between machines.
    Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html;
        https://github.com/NVIDIA/nccl/issues/2079
    """
    for engine, cause in engines.ended(*_NOT_TALKING):
        yield logged(engine, cause, Seen("ranks", str(engine.ranks)))


# --- memory -----------------------------------------------------------------------------------------------------------


@check("engine.memory-held-by-others", Severity.FAIL, layer="engine")
def memory_held_by_others(engines: Engines) -> Iterator[Finding]:
    """An engine did not start because others hold the GPU's memory.

    Why: vLLM takes a share of the whole GPU, 0.92 where nothing else is said, and refuses to start where less is free.
        Mostly an earlier engine has not ended yet, or some other process uses the card.
    Fix: see who holds it (nvidia-smi, docker ps, fuser -v /dev/nvidia*) and end that other process; else lower
        --gpu-memory-utilization below the share that is free.
    Source: https://github.com/vllm-project/vllm/issues/20305
    """
    for engine, cause in engines.ended("memory-held-by-others"):
        yield logged(engine, cause, _option(engine, "--gpu-memory-utilization"), do=("nvidia-smi",))


@check("engine.context-exceeds-kv-cache", Severity.FAIL, layer="engine")
def context_exceeds_kv_cache(engines: Engines) -> Iterator[Finding]:
    """An engine did not start because one request of the full context does not fit into the KV cache.

    Why: the context length is the model's own where --max-model-len does not say another, and it must fit at least once
        into what the weights leave of the memory of the smallest GPU in use.
    Fix: set --max-model-len (max_model_len in Python) to what you need, at most what the log names; raise
        --gpu-memory-utilization a little; --kv-cache-dtype fp8 doubles the room on GPUs that have FP8; else a quantized
        model or more GPUs.
    Source: https://github.com/vllm-project/vllm/issues/34076;
        https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
    """
    for engine, cause in engines.ended("context-exceeds-kv-cache", "no-kv-cache-memory"):
        possible = cause.values.get("possible", "")
        do = (f"recreate {engine.name} with --max-model-len {possible}",) if possible else ()
        yield logged(engine, cause, _option(engine, "--max-model-len"), do=do)


@check("engine.out-of-gpu-memory", Severity.FAIL, layer="engine")
def out_of_gpu_memory(engines: Engines) -> Iterator[Finding]:
    """An engine ran out of GPU memory.

    Why: the weights do not fit, or --gpu-memory-utilization leaves too little for activations and CUDA graphs, which
        are captured last.
    Fix: lower --gpu-memory-utilization or --max-num-seqs; where already the weights do not fit, take a quantized model
        or more GPUs (--tensor-parallel-size). --enforce-eager saves the graphs' memory and costs decode speed.
    Source: https://github.com/vllm-project/vllm/issues/57475;
        https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
    """
    for engine, cause in engines.ended("out-of-memory", "allocator-without-nvml"):
        yield logged(engine, cause, _option(engine, "--gpu-memory-utilization"), _option(engine, "--max-num-seqs"))
