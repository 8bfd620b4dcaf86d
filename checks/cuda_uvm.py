"""CUDA tried on the host, and the driver's state, in; a kernel that nvidia_uvm does not get on with out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host

_NOT_INITIALIZED = 3


@check(
    "cuda.hmm-breaks-init",
    Severity.FAIL,
    layer="driver",
    after=["driver.nvml-fails", "driver.device-nodes-missing", "driver.uvm-not-ready", "cuda.library-not-the-drivers"],
    fix="driver",
)
def hmm_breaks_init(cuda: Cuda, gpus: Gpus, host: Host) -> Iterator[Finding]:
    """CUDA does not start: nvidia_uvm and this kernel do not agree on heterogeneous memory management (HMM).

    Why: nvidia-smi, the device nodes and the kernel log look well, and cuInit ends with error 3. On kernels of EL9 with
        some driver releases the part of nvidia_uvm that shares the CPU's page tables (HMM) fails to set itself up.
    Fix: switch that part off and load the module anew:
            echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/nvidia-uvm.conf
            sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm
        or take a driver release that has the fix. Nothing that vLLM does needs HMM.
    Source: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/901;
        https://github.com/NVIDIA/open-gpu-kernel-modules/issues/947
    """
    error = cuda.error
    if error and error.code == _NOT_INITIALIZED and gpus.working:
        seen = (
            Seen("CUDA", str(error), "libcuda, tried in a process of its own"),
            Seen("NVML", f"opens {len(gpus.working)} GPUs", "NVML"),
            Seen("kernel", host.kernel, "uname -r"),
        )
        yield Finding(f"cuInit ends with error 3 on kernel {host.kernel}, while NVML works", seen=seen)
