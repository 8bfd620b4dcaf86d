"""A healthy machine as a value, for tests to change."""

from typing import Any

from lpxdoctor.facts.host import Disk, Host
from tests.facts.builders_gpu import bridge, pci_gpu
from tests.facts.given import only


def healthy_host(**changes: Any) -> Host:
    """Return a bare-metal server with one H200 and nothing to complain about."""
    good: dict[str, Any] = {
        "os_name": "Ubuntu 24.04.3 LTS",
        "kernel": "6.8.0-87-generic",
        "root": True,
        "virtualization": "",
        "pci": (pci_gpu(),),
        "bridges": (bridge(),),
        "kernel_log": ("[    0.000000] Linux version 6.8.0-87-generic",),
        "stuck": (),
        "disks": (Disk("/", 900_000_000, 700_000_000), Disk("/dev/shm", 500_000_000, 500_000_000)),
        "read_only": (),
        "reboot_required": False,
        "reboot_packages": (),
        "governor": "performance",
        "governor_driver": "intel_pstate",
        "clocksource": "tsc",
    }
    return only(Host, **{**good, **changes})


def two_gpus(**changes: Any) -> tuple[Any, ...]:
    """Return two GPUs, both changed alike."""
    return pci_gpu(0, **changes), pci_gpu(1, **changes)
