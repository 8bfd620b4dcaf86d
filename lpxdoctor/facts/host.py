"""What is asked of the machine itself in, its PCI devices, kernel, kernel log, disks and stuck processes out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lpxdoctor.evidence import Command, Evidence, File, Glob, Listing, Probe, Program, Unreadable
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.facts.pci import Bridge, PciDevice, bridges, devices

OS_RELEASE = File("/etc/os-release")
KERNEL = File("/proc/sys/kernel/osrelease")
DMESG = Command(("dmesg",))
DETECT_VIRT = Command(("systemd-detect-virt",))
DMI = Glob("/sys/class/dmi/id/*_[vn][ae][nm]*")  # sys_vendor, product_name, board_vendor, board_name, bios_vendor, ...
CONTAINER_MARKS = Listing("/.dockerenv"), Listing("/run/.containerenv")
MOUNTS = File("/proc/self/mounts")
INIT = File("/proc/1/comm")
VIRTUALIZATION: tuple[Probe, ...] = (DETECT_VIRT, DMI, *CONTAINER_MARKS, MOUNTS, INIT)
UEVENTS = Glob("/sys/bus/pci/devices/*/uevent")
PCI = Program("pci")
STUCK = Program("stuck")
SHM = "/dev/shm"  # noqa: S108 - looked at, not written to
DISKS = Command(("df", "-k", "--output=target,size,avail", "/", "/var", "/boot", SHM))
REBOOT_MARKS = Listing("/run/reboot-required*")
REBOOT_PACKAGES = File("/run/reboot-required.pkgs")
GOVERNOR = Glob("/sys/devices/system/cpu/cpu0/cpufreq/scaling_[gd]*r")  # scaling_governor, scaling_driver
CLOCK = File("/sys/devices/system/clocksource/clocksource0/current_clocksource")
MACHINE_ID = File("/etc/machine-id")
BOOT_ID = File("/proc/sys/kernel/random/boot_id")

_LOG_STAMP = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\]")

# systemd-detect-virt(1), the table of containers; wsl, also there, is a virtual machine to us.
_CONTAINERS = (
    *("openvz", "lxc", "lxc-libvirt", "systemd-nspawn", "docker", "podman", "rkt", "proot", "pouch", "container-other"),
)
_HYPERVISORS = {
    "qemu": "kvm",
    "kvm": "kvm",
    "google compute engine": "kvm",
    "amazon ec2": "amazon",
    "vmware": "vmware",
    "virtual machine": "microsoft",
    "virtualbox": "oracle",
    "xen": "xen",
    "bochs": "bochs",
}


@dataclass(frozen=True)
class Disk:
    """A mounted file system and its space."""

    mount: str
    size_kib: int
    free_kib: int


@dataclass(frozen=True)
class StuckProcess:
    """A process that stays in uninterruptible sleep: nothing can end it."""

    pid: int
    name: str
    function: str
    stack: tuple[str, ...]
    age_s: int

    @property
    def in_driver(self) -> bool:
        """Whether it sleeps inside NVIDIA's module, or is one of NVIDIA's own programs."""
        return self.name.startswith(("nvidia", "nv-")) or any("[nvidia" in frame for frame in self.stack)


@dataclass(frozen=True, kw_only=True)
class Host(Fact):
    """The machine: what is plugged into it, what runs on it below the driver, and how it fares."""

    probes: ClassVar[tuple[Probe, ...]] = (
        *VIRTUALIZATION,
        *(OS_RELEASE, KERNEL, DMESG, UEVENTS, PCI, STUCK, DISKS, REBOOT_MARKS, REBOOT_PACKAGES, GOVERNOR, CLOCK),
        *(MACHINE_ID, BOOT_ID),
    )

    os_name: str
    kernel: str  # uname -r
    root: bool  # whether root asked
    virtualization: str  # "" on bare metal, "container", or the kind of virtual machine
    pci: tuple[PciDevice, ...]
    bridges: tuple[Bridge, ...]
    kernel_log: tuple[str, ...]
    stuck: tuple[StuckProcess, ...]
    disks: tuple[Disk, ...]
    read_only: tuple[str, ...]  # of / and /var, the mounts that cannot be written
    reboot_required: bool
    reboot_packages: tuple[str, ...]
    governor: str  # "" where the CPU's clock is not the kernel's to set
    governor_driver: str
    clocksource: str
    machine_id: str  # "" where the installation has none
    boot_id: str  # of the running kernel

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """NVIDIA's GPUs, bound to a driver or not."""
        return tuple(device for device in self.pci if device.is_gpu)

    @property
    def nvswitches(self) -> tuple[PciDevice, ...]:
        """NVSwitches that this host sees; a guest with some GPUs of a board may see none."""
        return tuple(device for device in self.pci if device.is_nvswitch)

    @property
    def in_container(self) -> bool:
        """Whether this is a container, whose kernel and modules are its host's."""
        return self.virtualization == "container"

    @property
    def kernel_log_begins_s(self) -> float | None:
        """Seconds after the boot of the log's first line, None where it has no line or lines without times."""
        stamp = _LOG_STAMP.match(self.kernel_log[0]) if self.kernel_log else None
        return float(stamp[1]) if stamp else None

    @classmethod
    def parse(cls, evidence: Evidence) -> "Host":
        """Return the facts that the answers hold; never raises."""
        return cls(
            os_name=known(lambda: assignments(evidence.text(OS_RELEASE))["PRETTY_NAME"]),
            kernel=known(lambda: evidence.text(KERNEL).strip()),
            root=evidence.uid == 0,
            virtualization=known(partial(virtualization, evidence)),
            pci=known(lambda: devices(evidence.found(UEVENTS), _or_reason(evidence, PCI))),
            bridges=known(lambda: bridges(evidence.value(PCI))),
            kernel_log=known(lambda: tuple(evidence.text(DMESG).splitlines())),
            stuck=known(lambda: tuple(_stuck(raw) for raw in evidence.value(STUCK))),
            disks=known(lambda: disks(_df(evidence))),
            read_only=known(lambda: read_only(evidence.text(MOUNTS))),
            reboot_required=known(lambda: bool(evidence.found(REBOOT_MARKS))),
            reboot_packages=known(lambda: tuple(dict.fromkeys((evidence.text_or_none(REBOOT_PACKAGES) or "").split()))),
            governor=known(lambda: _setting(evidence, "scaling_governor")),
            governor_driver=known(lambda: _setting(evidence, "scaling_driver")),
            clocksource=known(lambda: "".join((evidence.text_or_none(CLOCK) or "").split())),
            machine_id=known(lambda: "".join((evidence.text_or_none(MACHINE_ID) or "").split())),
            boot_id=known(lambda: evidence.text(BOOT_ID).strip()),
        )


def _or_reason(evidence: Evidence, probe: Probe) -> Any:
    try:
        return evidence.value(probe)
    except Unreadable as reason:
        return reason


def virtualization(evidence: Evidence) -> str:
    """Return "" for bare metal, "container", or the kind of virtual machine."""
    if not evidence.absent(DETECT_VIRT):
        said = str(evidence.value(DETECT_VIRT)["stdout"]).strip()  # "none" comes with exit status 1
        if said:
            return "" if said == "none" else "container" if said in _CONTAINERS else said
    if any(evidence.found(mark) for mark in CONTAINER_MARKS) or _overlaid_without_init(evidence):
        return "container"
    firmware = " ".join(text or "" for text in evidence.found(DMI).values()).lower()
    if not firmware.strip():
        raise Unreadable("neither systemd-detect-virt nor firmware tables tell a virtual machine from bare metal here")
    return next((kind for mark, kind in _HYPERVISORS.items() if mark in firmware), "")


def _overlaid_without_init(evidence: Evidence) -> bool:
    """Containers of Kubernetes leave no mark of their own: an overlay is their root, and no init their process 1."""
    root = next((fields for fields in _mounts(evidence.text(MOUNTS)) if fields[1] == "/"), ("", "", "", ""))
    return root[2] == "overlay" and evidence.text(INIT).strip() not in ("systemd", "init")


def _mounts(text: str) -> list[tuple[str, ...]]:
    """Return (source, mount point, type, options) of each mount."""
    return [tuple(fields[:4]) for line in text.splitlines() if len(fields := line.split()) >= 4]


def read_only(mounts: str) -> tuple[str, ...]:
    """Return which of / and /var, as mounted, cannot be written; a later mount covers an earlier one."""
    state = {fields[1]: "ro" in fields[3].split(",") for fields in _mounts(mounts)}
    if "/" not in state:
        raise ValueError("no root file system in /proc/self/mounts")
    var = "/var" if "/var" in state else "/"
    # An image-based system keeps / read-only by design; what must be written lies below /var everywhere.
    return (var,) if state[var] else ()


def _df(evidence: Evidence) -> str:
    """Return df's table; it ends with 1 where one of the paths does not exist, and prints the others."""
    return str(evidence.value(DISKS)["stdout"])


def disks(table: str) -> tuple[Disk, ...]:
    """Return the file systems in a table of df, each once."""
    rows = [line.rsplit(maxsplit=2) for line in table.splitlines()[1:]]
    if not rows:
        raise ValueError("df printed no file system")
    return tuple(dict.fromkeys(Disk(mount, int(size), int(free)) for mount, size, free in rows))


def _stuck(raw: Mapping[str, Any]) -> StuckProcess:
    return StuckProcess(int(raw["pid"]), str(raw["name"]), str(raw["function"]), tuple(raw["stack"]), int(raw["age_s"]))


def _setting(evidence: Evidence, name: str) -> str:
    text = next((text for path, text in evidence.found(GOVERNOR).items() if path.endswith("/" + name)), "")
    if text is None:
        raise Unreadable(f"{name} could not be read")
    return text.strip()


def log_matches(log: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    """Return the lines of a kernel log in which a regular expression is found."""
    sought = re.compile(pattern)
    return tuple(line for line in log if sought.search(line))
