"""Healthy GPUs as values, for tests to change."""

from dataclasses import replace
from typing import Any

from lpxdoctor.facts.gpu import Gpu, Gpus, gpu
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.pci import Bridge, PciDevice
from tests.facts.given import H200, only


def healthy_gpu(index: int = 0, **changes: Any) -> Gpu:
    """Return an idle H200, each at an address and with a UUID of its own."""
    one = gpu(H200["nvml"]["gpus"][0])
    own = {
        "index": index,
        "bus_id": f"0000:{index + 1:02x}:00.0",
        "uuid": f"GPU-{index:08d}-2222-3333-4444-555555555555",
    }
    return replace(one, **{**own, **changes})


def healthy_gpus(*gpus: Gpu, **changes: Any) -> Gpus:
    """Return NVML's view of a host with these GPUs, one idle H200 where none is given."""
    view = Gpus(
        error=None,
        library="/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04",
        driver_version="580.159.04",
        cuda_version="13.0",
        gpus=gpus or (healthy_gpu(),),
    )
    return replace(view, **changes)


def pci_gpu(index: int = 0, **changes: Any) -> PciDevice:
    """Return the PCI device of healthy_gpu(index), below one bridge, bound to the driver."""
    device = PciDevice(
        address=f"0000:{index + 1:02x}:00.0",
        vendor=0x10DE,
        device=0x2335,
        class_code=0x030200,
        driver="nvidia",
        above=(f"0000:00:{index + 1:02x}.0",),
        width=16,
        width_max=16,
    )
    return replace(device, **changes)


def bridge(index: int = 0, **changes: Any) -> Bridge:
    """Return the bridge above pci_gpu(index)."""
    return replace(Bridge(address=f"0000:00:{index + 1:02x}.0", width=16, width_max=16), **changes)


def host_with(*devices: PciDevice, **known: Any) -> Host:
    """Return a bare-metal host with these devices on its bus, one H200 where none is given, and a silent kernel log."""
    bare = {"pci": devices or (pci_gpu(),), "bridges": (bridge(),), "kernel_log": (), "virtualization": ""}
    return only(Host, **{**bare, **known})
