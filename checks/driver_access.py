"""Facts of driver and host in, whether programs reach the driver out: device nodes, NVML, nvidia-smi."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts import nodes
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.fact import told
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.nodes import Node
from lpxdoctor.facts.versions import version_table

_BEFORE = ["host.no-gpu", "driver.module-not-loaded"]
_MAKE_NODES = "sudo nvidia-modprobe -c 0 -u"
_UVM = "/dev/nvidia-uvm"
_EVERYBODY = 0o006
_INFOROM = 14  # gpu.inforom-corrupt


def _expected(driver: Driver) -> dict[str, tuple[int, int]]:
    if not driver.loaded:
        raise NotApplicable("no module is loaded that has device nodes")
    return nodes.expected(driver.majors, driver.adapters)


@check("driver.device-nodes-missing", Severity.FAIL, layer="driver", after=_BEFORE, fix="driver")
def device_nodes_missing(driver: Driver, host: Host) -> Iterator[Finding]:
    """The device files of the GPUs are missing.

    Why: programs open /dev/nvidiactl and /dev/nvidia0, 1, ... first. udev or nvidia-modprobe makes them when the module
        is loaded; where neither did, NVML says that the driver is not loaded, and containers are given nothing.
    Fix: sudo nvidia-modprobe -c 0 -u, once for each number; and enable nvidia-persistenced, which keeps them.
    Source: https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/faq.html (device files)
    """
    wanted = _expected(driver)
    if host.in_container:
        raise NotApplicable("a container is given those files that it may use")
    if driver.smi.status == 0:
        return  # it has just opened them
    there = {node.path for node in driver.nodes}
    missing = [path for path in wanted if path not in there and not path.startswith(_UVM)]
    if missing:
        yield Finding(
            f"{', '.join(missing)} should be there",
            seen=(
                Seen("GPUs of the module", str(len(driver.adapters)), "/proc/driver/nvidia/gpus"),
                Seen("device files", ", ".join(sorted(there)) or "none", "/dev"),
            ),
            do=(_MAKE_NODES,),
        )


@check("driver.device-node-stale", Severity.FAIL, layer="driver", after=_BEFORE, fix="driver")
def device_node_stale(driver: Driver) -> Iterator[Finding]:
    """A device file of the driver has the numbers of another device.

    Why: the kernel gives nvidia-uvm a new major number at each load of the module. A file that was kept from before, or
        copied into a container's specification, leads nowhere: opening it fails, and cuInit with it, while nvidia-smi
        works.
    Fix: sudo rm the file shown, then sudo nvidia-modprobe -c 0 -u. Where it comes from a CDI specification, make that
        anew (nvidia-ctk cdi generate).
    Source: https://github.com/NVIDIA/NemoClaw/pull/4733
        https://github.com/ggml-org/llama.cpp/issues/7218
    """
    wanted = _expected(driver)
    for node in driver.nodes:
        major, minor = wanted.get(node.path, (node.major, node.minor))
        if (node.major, node.minor) != (major, minor):
            yield Finding(
                f"its numbers are {node.major}:{node.minor}, the driver's are {major}:{minor}",
                subject=node.path,
                seen=(
                    Seen("file", f"{node.major}:{node.minor}", node.path),
                    Seen("driver", f"{major}:{minor}", "/proc/devices"),
                ),
                do=(f"sudo rm {node.path}", _MAKE_NODES),
            )


@check("driver.device-nodes-closed", Severity.WARN, layer="driver", after=_BEFORE, fix="driver")
def device_nodes_closed(driver: Driver) -> Iterator[Finding]:
    """Ordinary users may not open the GPUs' device files.

    Why: a service that runs as its own user, and rootless containers, get "Insufficient Permissions" or no device at
        all, while root sees everything.
    Fix: where that is not meant: remove NVreg_DeviceFileMode, NVreg_DeviceFileUID and NVreg_DeviceFileGID from
        /etc/modprobe.d and reboot. Where it is, put the service's user into the group and waive this finding.
    Source: https://download.nvidia.com/XFree86/Linux-x86_64/580.95.05/README/faq.html (NVreg_DeviceFileMode)
    """
    wanted = _expected(driver)
    closed = [node for node in driver.nodes if node.path in wanted and node.mode & _EVERYBODY != _EVERYBODY]
    if closed:
        yield Finding(
            f"{len(closed)} of {len(wanted)} files are closed to them",
            seen=(
                *(Seen(node.path, f"{node.mode:04o} uid {node.uid} gid {node.gid}") for node in closed[:4]),
                Seen("NVreg_DeviceFileMode", _mode(driver), "/proc/driver/nvidia/params"),
            ),
        )


def _mode(driver: Driver) -> str:
    value = driver.parameters.get("DeviceFileMode", "")
    return f"{int(value):04o}" if value.isdigit() else "not shown"


@check(
    "driver.uvm-not-ready", Severity.FAIL, layer="driver", after=[*_BEFORE, "driver.device-node-stale"], fix="driver"
)
def uvm_not_ready(driver: Driver) -> Iterator[Finding]:
    """CUDA cannot start: the module nvidia_uvm is not ready and nothing here would make it so.

    Why: CUDA needs nvidia_uvm beside nvidia; nvidia-smi does not. The program that loads it for everybody else than
        root, nvidia-modprobe, is not installed either, so cuInit fails with error 999 or finds no device.
    Fix: sudo modprobe nvidia_uvm, and for every boot: echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf.
        Install nvidia-modprobe.
    Source: https://github.com/ggml-org/llama.cpp/issues/7218
        https://github.com/NVIDIA/gpu-operator/issues/2685
    """
    if not driver.modprobe_helper:
        yield from _uvm(driver)


@check(
    "driver.uvm-loads-late",
    Severity.WARN,
    layer="driver",
    after=[*_BEFORE, "driver.device-node-stale", "driver.uvm-not-ready"],
    fix="driver",
)
def uvm_loads_late(driver: Driver) -> Iterator[Finding]:
    """The module nvidia_uvm is loaded only when the first CUDA program on the host starts.

    Why: a container brings no such program along. One that is started first after a boot, and a CDI specification
        written by then, lack /dev/nvidia-uvm: nvidia-smi works inside and cuInit fails.
    Fix: load it at every boot: echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf; for now:
            sudo nvidia-modprobe -c 0 -u
    Source: https://github.com/NVIDIA/gpu-operator/issues/2685
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/1611
    """
    if driver.modprobe_helper:
        yield from _uvm(driver)


def _uvm(driver: Driver) -> Iterator[Finding]:
    """Yield what CUDA needs of nvidia_uvm and is not there."""
    if not driver.loaded:
        raise NotApplicable("the module nvidia is not loaded")
    node: Node | None = next((node for node in driver.nodes if node.path == _UVM), None)
    major = driver.majors.get("nvidia-uvm")
    if major is None or node is None:
        yield Finding(
            "the module is not loaded" if major is None else "its device file is missing",
            seen=(
                Seen("module", "not loaded" if major is None else f"major number {major}", "/proc/devices"),
                Seen("device file", "missing" if node is None else f"{node.major}:{node.minor}", _UVM),
                Seen("nvidia-modprobe", "installed" if driver.modprobe_helper else "missing", "/usr/bin"),
            ),
            do=(_MAKE_NODES,) if driver.modprobe_helper else ("sudo modprobe nvidia_uvm",),
        )


@check(
    "driver.nvml-fails",
    Severity.FAIL,
    layer="driver",
    after=[
        *_BEFORE,
        "host.process-stuck-in-driver",
        "driver.libraries-missing",
        "driver.library-mismatch",
        "driver.wrong-module-flavour",
        "driver.device-nodes-missing",
        "driver.device-node-stale",
    ],
    fix="driver",
)
def nvml_fails(gpus: Gpus, driver: Driver, boot: Boot) -> Iterator[Finding]:
    """NVML, the library below nvidia-smi, does not answer.

    Why: container toolkit, engines and monitoring ask NVML which GPUs there are. With an error there they see none.
    Fix: as the error says. Where it gives no reason: sudo dmesg | grep -e NVRM -e Xid, then reboot.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t)
    """
    error = gpus.error
    if error:
        row = knowledge.load().nvml_code(error.code)
        yield Finding(
            f"{error}" + (f": {row.meaning}" if row else ""),
            seen=(
                Seen("library", told(lambda: gpus.library or "none"), "NVML"),
                *(Seen(*version) for version in version_table(driver, boot)),
            ),
            do=(row.do,) if row and row.do else (),
        )


@check(
    "driver.nvidia-smi-hangs",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "host.process-stuck-in-driver", "driver.nvml-fails"],
)
def nvidia_smi_hangs(driver: Driver) -> Iterator[Finding]:
    """nvidia-smi does not come to an end.

    Why: the driver waits for a GPU, or for its firmware (GSP), that does not answer. Whatever asks the driver next
        waits in the same queue, health checks and the container toolkit among it.
    Fix: look for Xid 119, 79 or 62 (sudo dmesg | grep Xid), keep the log, reboot; power cycle where that hangs too.
    Source: https://github.com/Azure/azurehpc/pull/714
        https://github.com/NVIDIA/open-gpu-kernel-modules/issues/446
    """
    if driver.smi.hung:
        yield Finding(
            f"it was left after its deadline: {driver.smi.hung}",
            seen=(Seen("nvidia-smi", driver.smi.hung, driver.smi.path),),
            do=("sudo dmesg | grep -e Xid -e NVRM",),
        )


@check(
    "driver.nvidia-smi-fails",
    Severity.FAIL,
    layer="driver",
    after=[*_BEFORE, "driver.nvml-fails", "driver.nvidia-smi-hangs", "gpu.lost", "gpu.power-cable-missing"],
)
def nvidia_smi_fails(driver: Driver) -> Iterator[Finding]:
    """nvidia-smi reports a failure by its exit status.

    Why: the status names faults that are easily overlooked in its table, a power cable or an interrupt that is missing.
    Fix: as the meaning says; sudo dmesg | grep NVRM tells more.
    Source: nvidia-smi(1), return value
    """
    if driver.smi.skipped:
        raise NotApplicable(driver.smi.skipped)
    status = driver.smi.status
    if status not in (0, None, _INFOROM):
        row = knowledge.load().nvidia_smi_code(status)
        yield Finding(
            f"it ended with {status}: {row.meaning if row else 'a status that is not documented'}",
            seen=(Seen("exit status", str(status), driver.smi.path), Seen("it said", driver.smi.said or "nothing")),
        )


@check("driver.persistence-refused-by-unit", Severity.INFO, layer="driver", after=_BEFORE, fix="driver")
def persistence_refused_by_unit(driver: Driver) -> Iterator[Finding]:
    """The persistence daemon runs, and is told not to switch persistence on.

    Why: Ubuntu's unit starts it with --no-persistence-mode. The GPUs are then shut down whenever the last program
        closes them, and the next one waits seconds until they are up again.
    Fix: sudo systemctl edit nvidia-persistenced, with ExecStart= on one line and the command without the option on the
        next, then sudo systemctl restart nvidia-persistenced.
    Source: https://docs.nvidia.com/deploy/driver-persistence/persistence-daemon.html
    """
    daemon = driver.persistenced
    if not daemon.installed:
        raise NotApplicable("there is no unit of the persistence daemon")
    if daemon.active and "--no-persistence-mode" in daemon.command:
        yield Finding(
            "its command has --no-persistence-mode",
            subject="nvidia-persistenced.service",
            seen=(Seen("ExecStart", daemon.command, "systemctl show nvidia-persistenced"),),
        )
