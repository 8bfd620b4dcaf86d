"""CUDA tried on the host itself in; why no program, or not every GPU, can compute here out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.cuda import DEVICE_UNAVAILABLE, NO_LIBRARY, Cuda
from lpxdoctor.facts.fabric import same_driver
from lpxdoctor.facts.gpu import Gpus

_STUB = 34
_TRIED = "libcuda, tried in a process of its own"


@check("cuda.library-is-stub", Severity.FAIL, layer="driver", after=["driver.nvml-fails", "driver.libcuda-is-a-stub"])
def library_is_stub(cuda: Cuda) -> Iterator[Finding]:
    """Programs load CUDA's stub library in the place of the driver's.

    Why: the toolkit brings an empty libcuda to link against where there is no driver. Found first at run time, every
    call of it fails with error 34.
    Fix: take the stubs directory out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run ldconfig.
    Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (CUDA_ERROR_STUB_LIBRARY)
    """
    if cuda.error and cuda.error.code == _STUB:
        seen = (Seen("libcuda that is loaded", cuda.library, _TRIED), Seen("answer", str(cuda.error), _TRIED))
        yield Finding("the loaded libcuda is the stub", seen=seen, do=("ldconfig -p | grep libcuda",))


@check(
    "cuda.library-not-the-drivers", Severity.FAIL, layer="driver", after=["driver.nvml-fails", "cuda.library-is-stub"]
)
def library_not_the_drivers(cuda: Cuda, gpus: Gpus) -> Iterator[Finding]:
    """Programs load a libcuda of another version than the driver's, and it does not work with it.

    Why: libcuda and the kernel module are one piece in two halves: another version ends with error 803, or with 804 on
    a card that forward compatibility is not offered for. Mostly it is the toolkit's compat directory on the library
    path, or the rest of an older driver.
    Fix: take its directory out of LD_LIBRARY_PATH and /etc/ld.so.conf.d, or remove the package cuda-compat; ldconfig.
    Source: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html;
    https://github.com/vllm-project/vllm/issues/33447
    """
    version = cuda.library_version
    if cuda.error and version and not same_driver(version, gpus.driver_version):
        seen = (
            Seen("libcuda that is loaded", f"{version} ({cuda.library})", _TRIED),
            Seen("driver", gpus.driver_version, "NVML"),
            Seen("answer", f"{cuda.error}: {cuda.error.meaning}", _TRIED),
        )
        what = "the compat library" if cuda.compat else "libcuda"
        yield Finding(
            f"{what} {version} over driver {gpus.driver_version}", seen=seen, do=("ldconfig -p | grep libcuda",)
        )


@check(
    "cuda.init-fails",
    Severity.FAIL,
    layer="driver",
    after=[
        "driver.nvml-fails",
        "driver.device-nodes-missing",
        "driver.uvm-not-ready",
        "fabric.not-completed",
        "cuda.library-is-stub",
        "cuda.library-not-the-drivers",
        "cuda.hmm-breaks-init",
    ],
)
def init_fails(cuda: Cuda) -> Iterator[Finding]:
    """CUDA cannot start on this host, though nvidia-smi may look well.

    Why: cuInit is the first thing that every engine calls, on the host and in a container. nvidia-smi does not call it:
    it works without nvidia_uvm, without Fabric Manager and with a libcuda of the wrong version.
    Fix: what stands beside the error; then `lpxdoctor check` again.
    Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (CUresult)
    """
    if cuda.error:
        error = cuda.error
        seen = [Seen("answer", str(error), _TRIED)]
        seen += [Seen("libcuda that is loaded", cuda.library, _TRIED)] if cuda.library else []
        meaning = "libcuda.so.1 was not found" if error.code == NO_LIBRARY else error.meaning
        yield Finding(
            f"{error}" + (f": {meaning}" if meaning else ""), seen=tuple(seen), do=(error.do,) if error.do else ()
        )


@check(
    "cuda.compute-fails",
    Severity.FAIL,
    layer="hardware",
    after=["cuda.init-fails", "gpu.lost", "gpu.compute-mode-prohibited", "gpu.recovery-needed"],
)
def compute_fails(cuda: Cuda, gpus: Gpus) -> Iterator[Finding]:
    """A GPU does not compute: a context, a copy or a small kernel failed on it.

    Why: CUDA starts and lists the GPU, and the first real work on it ends with an error, as an engine's would.
    Fix: what stands beside the error; with the kernel log (Xid) beside it: journalctl -k | grep -E 'NVRM|Xid'. Wrong
    numbers mean the card: run the field diagnostics.
    Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (CUresult)
    """
    held = {gpu.uuid for gpu in gpus.working if (gpu.compute_mode or "").startswith("exclusive") and gpu.others}
    for index, device in enumerate(cuda.devices):
        if device.error and device.error.code == DEVICE_UNAVAILABLE and device.uuid in held:
            continue  # it admits one process, and has it
        if device.fault:
            fault = device.fault
            meaning = f": {fault.meaning}" if fault.meaning else ""
            seen = (Seen(device.name, str(fault), _TRIED),)
            yield Finding(f"{fault}{meaning}", f"CUDA device {index}", seen, (fault.do,) if fault.do else ())


@check(
    "cuda.devices-fewer", Severity.WARN, layer="driver", after=["cuda.init-fails", "gpu.lost", "gpu.not-initialised"]
)
def devices_fewer(cuda: Cuda, gpus: Gpus) -> Iterator[Finding]:
    """CUDA finds fewer GPUs than nvidia-smi lists.

    Why: an engine gets what CUDA finds, and tensor parallelism over the planned number does not start.
    Fix: look at the device nodes and at MIG; a GPU that CUDA skips often has its reason in the kernel log.
    Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (cuDeviceGetCount)
    """
    if any(gpu.mig and gpu.mig[0] for gpu in gpus.working):
        raise NotApplicable("with MIG, CUDA shows one slice to a program")
    if cuda.error is None and len(cuda.devices) < len(gpus.working):
        found = {device.uuid for device in cuda.devices}
        seen = [Seen("CUDA", str(len(cuda.devices)), _TRIED), Seen("NVML", str(len(gpus.working)), "NVML")]
        seen += [Seen("not found by CUDA", gpu.subject, gpu.bus_id) for gpu in gpus.working if gpu.uuid not in found]
        yield Finding(f"CUDA finds {len(cuda.devices)} of {len(gpus.working)} GPUs", seen=tuple(seen))


@check("cuda.visible-devices-set", Severity.INFO, layer="deployment", after=["host.no-gpu"])
def visible_devices_set(cuda: Cuda) -> Iterator[Finding]:
    """This login limits which GPUs a program sees.

    Why: what you start from it sees those alone. The findings here are about the whole host.
    Fix: unset CUDA_VISIBLE_DEVICES
    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_VISIBLE_DEVICES)
    """
    value = cuda.environment.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        seen = (Seen("CUDA_VISIBLE_DEVICES", repr(value), "the environment of this run"),)
        yield Finding(f"CUDA_VISIBLE_DEVICES is {value!r}", seen=seen, do=("unset CUDA_VISIBLE_DEVICES",))
