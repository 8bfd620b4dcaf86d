"""NVSwitches, the GPUs' place in their fabric and what manages it in; a fabric that keeps CUDA from starting out."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.fabric import UNIT, Fabric, same_driver
from lpxdoctor.facts.gpu import Gpu, Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.nvml import FabricState
from lpxdoctor.facts.xid import switch_events

_DRIVER = ("driver.module-not-loaded", "driver.library-mismatch", "driver.nvml-fails")
_STATES = {
    FabricState.NOT_STARTED: "not started",
    FabricState.IN_PROGRESS: "in progress",
    FabricState.COMPLETED: "completed",
}
# nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: (shift, mask, values that are a fault, what they mean)
_HEALTH = (
    (0, 0x3, (1,), "bandwidth is degraded"),
    (2, 0x3, (1,), "routes are being recovered"),
    (4, 0x3, (1,), "a route is unhealthy"),
    (6, 0x3, (1,), "a time-out of accesses is being recovered"),
    (8, 0xF, tuple(range(2, 16)), "the configuration is wrong"),
)


@check("fabric.manager-not-installed", Severity.FAIL, layer="driver", after=_DRIVER, fix="driver")
def manager_not_installed(host: Host, gpus: Gpus, fabric: Fabric, cuda: Cuda) -> Iterator[Finding]:
    """This host has an NVSwitch fabric and no Fabric Manager to bring it up.

    Why: nvidia-smi looks perfect, and every CUDA program ends with error 802 (system not yet initialised): GPUs on an
    NVSwitch board compute only after Fabric Manager has configured the switches.
    Fix: install the Fabric Manager package of exactly the driver's version, then sudo systemctl enable --now
    nvidia-fabricmanager. Boards from HGX B200 on need the package nvlsm too.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide;
    https://github.com/pytorch/pytorch/issues/35710
    """
    why = _needed(host, gpus, cuda)
    if not fabric.installed:
        seen = (Seen("fabric", why), Seen("nv-fabricmanager", "not found", "PATH"), Seen(UNIT, "unknown", "systemctl"))
        yield Finding("nothing configures the NVSwitch fabric", seen=seen)


@check(
    "fabric.manager-version-differs",
    Severity.FAIL,
    layer="driver",
    after=[*_DRIVER, "fabric.manager-not-installed"],
    fix="driver",
)
def manager_version_differs(host: Host, gpus: Gpus, fabric: Fabric, cuda: Cuda) -> Iterator[Finding]:
    """Fabric Manager is of another version than the driver.

    Why: it refuses to start unless both are the same to the last digit, and then CUDA ends with error 802. Mostly one
    of the two packages was upgraded alone.
    Fix: install the Fabric Manager of the driver's version, hold both packages, and restart the service.
    Source: https://github.com/NVIDIA/gpu-operator/issues/544;
    https://github.com/NVIDIA/gpu-driver-container/issues/735
    """
    _needed(host, gpus, cuda)
    if fabric.version and not same_driver(fabric.version, gpus.driver_version):
        seen = (
            Seen("kernel module, loaded", gpus.driver_version, "NVML"),
            Seen("Fabric Manager", fabric.version, "nv-fabricmanager --version"),
        )
        yield Finding(f"Fabric Manager {fabric.version} does not start on driver {gpus.driver_version}", seen=seen)


@check(
    "fabric.subnet-manager-missing",
    Severity.FAIL,
    layer="driver",
    after=[*_DRIVER, "fabric.manager-not-installed", "fabric.manager-version-differs"],
    fix="driver",
)
def subnet_manager_missing(host: Host, gpus: Gpus, fabric: Fabric, cuda: Cuda) -> Iterator[Finding]:
    """The NVSwitches of this board need the NVLink Subnet Manager, and it is not installed.

    Why: from the fourth generation on (HGX B200, B300) Fabric Manager programs the switches through it; without it
    Fabric Manager finds nothing to do, the GPUs stay "in progress", and CUDA ends with error 802.
    Fix: install the package nvlsm (its versions are dates and follow no driver), then restart nvidia-fabricmanager.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide;
    https://github.com/siderolabs/extensions/pull/717
    """
    _fourth_generation(host, gpus, cuda)
    if not fabric.subnet_manager:
        seen = (Seen("nvlsm", "not found", "/opt/nvidia/nvlsm/sbin/nvlsm"), *_states(gpus))
        yield Finding("the NVLink Subnet Manager (nvlsm) is not installed", seen=seen)


@check(
    "fabric.mad-module-not-loaded",
    Severity.FAIL,
    layer="driver",
    after=[*_DRIVER, "fabric.manager-not-installed"],
    fix="driver",
)
def mad_module_not_loaded(host: Host, gpus: Gpus, fabric: Fabric, cuda: Cuda) -> Iterator[Finding]:
    """The kernel module through which this board's NVSwitches are reached (ib_umad) is not loaded.

    Why: from the fourth generation on Fabric Manager talks to the switches in InfiniBand management datagrams, through
    /dev/infiniband/umad*; its start script waits for them in vain.
    Fix: load it, now and at each boot:
            sudo modprobe ib_umad
            echo ib_umad | sudo tee /etc/modules-load.d/ib_umad.conf
            sudo systemctl restart nvidia-fabricmanager
    Source: https://github.com/spectrocloud/CanvOS/pull/700
    """
    _fourth_generation(host, gpus, cuda)
    if not fabric.mad_module:
        seen = (Seen("ib_umad", "not loaded", "/sys/module/ib_umad"), *_states(gpus))
        do = ("sudo modprobe ib_umad", "sudo systemctl restart nvidia-fabricmanager")
        yield Finding("ib_umad is not loaded", seen=seen, do=do)


@check(
    "fabric.manager-not-running",
    Severity.FAIL,
    layer="driver",
    after=[
        *_DRIVER,
        "fabric.manager-not-installed",
        "fabric.manager-version-differs",
        "fabric.subnet-manager-missing",
        "fabric.mad-module-not-loaded",
    ],
    fix="driver",
)
def manager_not_running(host: Host, gpus: Gpus, fabric: Fabric, cuda: Cuda) -> Iterator[Finding]:
    """Fabric Manager is installed and does not run.

    Why: the NVSwitch fabric is not configured, so every CUDA program ends with error 802 while nvidia-smi looks well.
    Fix: sudo systemctl enable --now nvidia-fabricmanager; where it fails, journalctl -u nvidia-fabricmanager says why.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    why = _needed(host, gpus, cuda)
    if fabric.installed and (fabric.unit is None or not fabric.unit.running):
        seen = (Seen("fabric", why), Seen(UNIT, str(fabric.unit or "no such unit"), "systemctl show"), *_states(gpus))
        do = ("sudo systemctl enable --now nvidia-fabricmanager", "journalctl -u nvidia-fabricmanager -n 50")
        yield Finding("Fabric Manager does not run", seen=seen, do=do)


@check(
    "fabric.not-completed", Severity.FAIL, layer="driver", after=[*_DRIVER, "fabric.manager-not-running"], fix="driver"
)
def not_completed(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU has not been taken into the NVSwitch fabric.

    Why: CUDA on it ends with error 802 until it has been. Right after a boot this takes some tens of seconds; later it
    means that Fabric Manager met an error, or that a driver reload left it behind.
    Fix: sudo systemctl restart nvidia-fabricmanager, and look again; its log is /var/log/fabricmanager.log. In a guest
    that has no NVSwitch this is for whoever runs the hypervisor's host.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    if not host.nvswitches and not _members(gpus):
        raise NotApplicable("this host has no NVSwitch")
    for gpu in _members(gpus):
        if gpu.fabric and gpu.fabric.state in (FabricState.NOT_STARTED, FabricState.IN_PROGRESS):
            seen = (Seen("fabric state", _STATES[gpu.fabric.state], "NVML"),)
            yield Finding(f"{gpu.subject}: fabric {_STATES[gpu.fabric.state]}", gpu.subject, seen)


@check("fabric.unhealthy", Severity.WARN, layer="hardware", after=[*_DRIVER, "fabric.not-completed"])
def unhealthy(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's place in the NVSwitch fabric is not healthy.

    Why: it computes, but traffic to other GPUs is slower, fails, or takes ways round a bad link.
    Fix: nvidia-smi -q | grep -A 12 Fabric; nvidia-smi nvlink -e; restart Fabric Manager; then reset all GPUs at once.
    Source: nvml.h, nvmlGpuFabricInfoV_t
    """
    members = [gpu for gpu in gpus.working if gpu.fabric and gpu.fabric.state == FabricState.COMPLETED]
    if not members:
        raise NotApplicable("no GPU is in an NVSwitch fabric")
    for gpu in members:
        assert gpu.fabric is not None
        faults = [what for shift, mask, bad, what in _HEALTH if gpu.fabric.health >> shift & mask in bad]
        if gpu.fabric.status:
            row = knowledge.load().nvml_code(gpu.fabric.status)
            faults.append(f"it ended with {row.name if row else gpu.fabric.status}")
        if faults:
            seen = (Seen("health mask", f"{gpu.fabric.health:#x}", "NVML"),)
            yield Finding(f"{gpu.subject}: {', '.join(faults)}", gpu.subject, seen)


@check(
    "fabric.manager-not-enabled",
    Severity.WARN,
    layer="driver",
    after=[*_DRIVER, "fabric.manager-not-running"],
    fix="driver",
)
def manager_not_enabled(host: Host, gpus: Gpus, fabric: Fabric) -> Iterator[Finding]:
    """Fabric Manager runs now and will not at the next boot.

    Why: the host is well until it reboots; then every CUDA program ends with error 802.
    Fix: sudo systemctl enable nvidia-fabricmanager
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    _has_fabric(host, gpus)
    if fabric.unit and fabric.unit.running and fabric.unit.enabled == "disabled":
        seen = (Seen(UNIT, str(fabric.unit), "systemctl show"),)
        do = ("sudo systemctl enable nvidia-fabricmanager",)
        yield Finding("nvidia-fabricmanager is not enabled", seen=seen, do=do)


@check("fabric.manager-not-needed", Severity.INFO, layer="driver", after=["host.no-gpu"])
def manager_not_needed(host: Host, gpus: Gpus, fabric: Fabric) -> Iterator[Finding]:
    """Fabric Manager is installed on a host without an NVSwitch and fails there.

    Why: it has nothing to manage, and ends with an error that looks alarming and means nothing.
    Fix: sudo systemctl disable --now nvidia-fabricmanager, or remove the package.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    if fabric.unit is None or fabric.unit.active != "failed":
        raise NotApplicable("no failed Fabric Manager")
    if not host.nvswitches and not any(gpu.fabric and gpu.fabric.state for gpu in gpus.working):
        seen = (Seen(UNIT, str(fabric.unit), "systemctl show"), Seen("NVSwitches", "none", "PCI bus and NVML"))
        do = ("sudo systemctl disable --now nvidia-fabricmanager",)
        yield Finding("nvidia-fabricmanager failed, and nothing here needs it", seen=seen, do=do)


@check("fabric.switch-errors", Severity.WARN, layer="hardware", after=["host.no-gpu"])
def switch_errors(host: Host) -> Iterator[Finding]:
    """An NVSwitch has reported fatal errors since boot.

    Why: after a fatal SXid the links of that switch are down, and programs that use several GPUs stop.
    Fix: reset all GPUs at once, or reboot; the same switch and link again means the board or its connector.
    Source: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (SXid errors)
    """
    if not host.nvswitches:
        raise NotApplicable("this host has no NVSwitch")
    fatal = {(event.address, event.code): event for event in switch_events(host.kernel_log) if event.fatal}
    for event in fatal.values():
        seen = (Seen("kernel log", event.text, f"dmesg, SXid {event.code} on {event.address}"),)
        yield Finding(f"NVSwitch {event.address}: SXid {event.code}", event.address, seen)


def _members(gpus: Gpus) -> list[Gpu]:
    return [gpu for gpu in gpus.working if gpu.fabric and gpu.fabric.state != FabricState.NOT_SUPPORTED]


def _has_fabric(host: Host, gpus: Gpus) -> str:
    """Return what shows that this host's own Fabric Manager is needed, or raise NotApplicable.

    Never the product's name: single boards, guests and Grace racks with the same GPUs need none here.
    """
    if host.nvswitches:
        return f"{len(host.nvswitches)} NVSwitches on the PCI bus"
    members = _members(gpus)
    if not members:
        raise NotApplicable("this host has no NVSwitch")
    known = knowledge.load()
    if any(row.c2c for gpu in members if (row := known.gpu_by_pci(gpu.device_id))):
        raise NotApplicable("the fabric of these GPUs is managed on the rack's switch trays")
    if host.virtualization:
        raise NotApplicable("this guest has no NVSwitch: its GPUs' fabric is managed outside")
    return f"{len(members)} GPUs belong to an NVSwitch fabric"


def _needed(host: Host, gpus: Gpus, cuda: Cuda) -> str:
    """Return what _has_fabric does; raise NotApplicable too where the fabric is up, whoever has brought it up."""
    why = _has_fabric(host, gpus)
    members = _members(gpus)
    if members and all(gpu.fabric and gpu.fabric.state == FabricState.COMPLETED for gpu in members):
        raise NotApplicable("every GPU has been taken into the fabric")
    if cuda.started:
        raise NotApplicable("CUDA has started on this host, so its fabric is up")
    return why


def _fourth_generation(host: Host, gpus: Gpus, cuda: Cuda) -> None:
    """Raise NotApplicable unless the switches are of the fourth generation, which are not on the PCI bus."""
    _needed(host, gpus, cuda)
    if host.nvswitches:
        raise NotApplicable("these NVSwitches are older than the fourth generation")


def _states(gpus: Gpus) -> tuple[Seen, ...]:
    states = {_STATES.get(gpu.fabric.state, "") for gpu in gpus.working if gpu.fabric} - {""}
    return tuple(Seen("fabric state", state, "NVML") for state in sorted(states))
