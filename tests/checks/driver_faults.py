"""A fault for each check of the driver, as values, and healthy facts to judge it with."""

from dataclasses import replace
from typing import Any

from lpxdoctor.facts.driver import Daemon, Driver, Smi
from lpxdoctor.facts.driver_log import Complaint
from lpxdoctor.facts.environment import Variable
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.libraries import Libraries
from lpxdoctor.facts.nvml import NvmlError
from lpxdoctor.facts.packages import Package
from tests.checks.judging import found
from tests.facts.builders_boot import RUNNING, healthy_boot, module, without_nvidia
from tests.facts.builders_driver import LIB, NODES, PACKAGES, healthy_driver, libraries, library, no_driver, node
from tests.facts.builders_gpu import healthy_gpus, pci_gpu
from tests.facts.builders_host import healthy_host
from tests.facts.given import only

GPU = "0000:01:00.0"
NO_DEVICES = only(Gpus, error=None, gpus=(), library="", driver_version="580.95.05")
NEW_LIBRARIES = libraries("580.105.08")
STUB = library(
    "libcuda.so.1", path="/usr/local/cuda/lib64/stubs/libcuda.so.1", real="/usr/local/cuda/lib64/stubs/libcuda.so"
)
COMPAT = library(
    "libcuda.so.1",
    real="/usr/local/cuda-13.0/compat/libcuda.so.580.65.06",
    path="/usr/local/cuda-13.0/compat/libcuda.so.1",
)
NEEDS_OPEN = Complaint("needs open", "NVRM: ... requires use of the NVIDIA open kernel modules.", GPU)
REJECTED = Complaint("signature", "Loading of unsigned module is rejected", "")
MISMATCH = "NVRM: API mismatch: the client has the version 570.86.15, but this kernel module has the version 580.95.05."
BLACKWELL, VOLTA = 0x2BB5, 0x1DB6

# A line a check: the changed driver, what else is changed, and what the finding must say.
CHANGED: dict[str, tuple[Driver, tuple[Any, ...], str]] = {
    "driver.not-installed": (no_driver(), (healthy_boot(kernels=(without_nvidia(),)),), "no module, library, package"),
    "driver.nouveau-bound": (no_driver(), (healthy_host(pci=(pci_gpu(driver="nouveau"),)),), "bound to 1 of 1 GPUs"),
    "driver.nouveau-loaded": (healthy_driver(in_memory=frozenset({"nvidia", "nouveau"})), (), "it is in memory"),
    "driver.gpu-owned-by-another": (healthy_driver(), (healthy_host(pci=(pci_gpu(driver="nvidiafb"),)),), "nvidiafb"),
    "driver.gpu-given-away": (
        healthy_driver(),
        (healthy_host(pci=(pci_gpu(0), pci_gpu(1, driver="vfio-pci"))),),
        "1 of 2 are bound so",
    ),
    "driver.module-not-loaded": (
        healthy_driver(loaded="", complaints=(REJECTED,)),
        (NO_DEVICES,),
        "the kernel says why: Loading of unsigned module is rejected",
    ),
    "driver.wrong-module-flavour": (
        healthy_driver(open_module=False),
        (healthy_host(pci=(pci_gpu(device=BLACKWELL),)), NO_DEVICES),
        "needs the open one",
    ),
    "driver.libraries-missing": (
        healthy_driver(libraries=Libraries(libraries().taken[:1], ((f"{LIB}/libcuda.so.1", f"{LIB}/libcuda.so.580"),))),
        (),
        "it is in no usual directory",
    ),
    "driver.libcuda-is-a-stub": (healthy_driver(libraries=libraries("580.95.05", STUB)), (), "stubs/libcuda.so"),
    "driver.compat-libcuda-on-host": (
        healthy_driver(libraries=libraries("580.95.05", COMPAT)),
        (),
        "580.65.06 of cuda-compat",
    ),
    "driver.library-mismatch": (
        healthy_driver(libraries=NEW_LIBRARIES),
        (),
        "the module in memory is 580.95.05, the libraries are 580.105.08",
    ),
    "driver.module-waits-for-restart": (
        healthy_driver(),
        (healthy_boot(modules={RUNNING: (module(version="580.105.08"),)}),),
        "580.95.05 runs, 580.105.08 is on disk",
    ),
    "driver.client-of-other-version": (
        healthy_driver(complaints=(Complaint("api mismatch", MISMATCH, ""),)),
        (),
        "its libraries were 570.86.15",
    ),
    "driver.two-installs": (healthy_driver(runfile=True), (), "both the .run installer and packages"),
    "driver.packages-mixed": (
        healthy_driver(packages=(*PACKAGES, Package("nvidia-utils-580-server", "580.105.08-0ubuntu0.24.04.1"))),
        (),
        "2 packages are 580.95.05, 1 are not",
    ),
    "driver.packages-not-held": (
        healthy_driver(packages=tuple(replace(package, held=False) for package in PACKAGES)),
        (),
        "unattended-upgrades is on, and 2 of 2",
    ),
    "driver.harmful-environment": (
        healthy_driver(variables=(Variable("CUDA_LAUNCH_BLOCKING", "1", "/etc/environment:3"),)),
        (),
        "CUDA_LAUNCH_BLOCKING=1 makes every kernel launch wait",
    ),
    "driver.device-nodes-missing": (
        healthy_driver(nodes=NODES[1:], smi=Smi("/usr/bin/nvidia-smi", 9, "NVIDIA-SMI has failed", "", "")),
        (),
        "/dev/nvidia0 should be there",
    ),
    "driver.device-node-stale": (
        healthy_driver(nodes=(*NODES[:2], node("/dev/nvidia-uvm", 508, 0))),
        (),
        "its numbers are 508:0, the driver's are 510:0",
    ),
    "driver.device-nodes-closed": (
        healthy_driver(nodes=(replace(NODES[0], mode=0o660, gid=44), *NODES[1:])),
        (),
        "1 of 4 files are closed",
    ),
    "driver.uvm-not-ready": (
        healthy_driver(majors={"nvidia": 195}, nodes=NODES[:2], modprobe_helper=False),
        (),
        "the module is not loaded",
    ),
    "driver.uvm-loads-late": (healthy_driver(majors={"nvidia": 195}, nodes=NODES[:2]), (), "the module is not loaded"),
    "driver.nvml-fails": (
        healthy_driver(),
        (healthy_gpus(error=NvmlError.of("nvmlInit_v2", 9)),),
        "nvmlInit_v2: DRIVER_NOT_LOADED: the kernel module is not loaded",
    ),
    "driver.nvidia-smi-hangs": (
        healthy_driver(smi=Smi("/usr/bin/nvidia-smi", None, "", "", "process 99 in uninterruptible sleep (D)")),
        (),
        "process 99",
    ),
    "driver.nvidia-smi-fails": (
        healthy_driver(smi=Smi("/usr/bin/nvidia-smi", 15, "Unable to determine the device handle", "", "")),
        (),
        "it ended with 15: the GPU has fallen off the bus",
    ),
    "driver.persistence-refused-by-unit": (
        healthy_driver(persistenced=Daemon(True, True, "/usr/bin/nvidia-persistenced --no-persistence-mode --verbose")),
        (),
        "--no-persistence-mode",
    ),
}


def given(*others: Any) -> dict[type, Any]:
    """Return healthy facts, those given instead of their kind."""
    facts: tuple[Any, ...] = (healthy_host(), healthy_boot(), healthy_driver(), healthy_gpus(), *others)
    return {type(fact): fact for fact in facts}


def judged(check_id: str, *others: Any) -> list[str]:
    return [f"{f.subject} {f.message}" for f in found(check_id, *given(*others).values())]
