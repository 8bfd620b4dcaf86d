"""What NVML, the PCI bus and the kernel log say of each GPU in; which ones are not there, or not to be used, out."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.pci import PciDevice
from lpxdoctor.facts.xid import RECOVERY_CHANGED, readable_log, supporting, xids
from lpxdoctor.knowledge.rows import Capability

_ELSEWHERE = ("vfio-pci", "pci-stub", "nouveau")  # drivers whose GPUs NVML does not list, and is not to
_NO_POWER = 8
_RESET_REQUIRED = 16
_CORRUPTED_INFOROM = 14


@check("gpu.lost", Severity.FAIL, layer="hardware", after=["host.no-gpu", "host.gpu-does-not-answer"])
def lost(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU has fallen off the bus.

    Why: the card no longer answers over PCI Express (Xid 79), though it did at boot. Programs on it are dead, and any
        call to the driver may hang while it waits for it. Mostly it is power, heat, the seat of the card or a riser.
    Fix: reboot, with the power cut for some seconds where a warm reboot does not bring it back. Then reseat the card,
        its riser and its power cables; look at the power supply's and the board controller's event log (ipmitool sel
        list) and at the temperature. A card that falls off again under load, in another slot too, is to be replaced.
    Source: https://docs.nvidia.com/deploy/xid-errors/ (Xid 79); https://docs.nvidia.com/deploy/gpu-debug-guidelines/
    """
    logged = [Seen("kernel log", str(event), event.where) for event in supporting(host) if event.code == 79]
    for gpu in gpus.gpus:
        if gpu.lost:
            seen = (Seen("NVML", "GPU_IS_LOST", "NVML"), *logged[-3:])
            yield Finding(f"NVML has lost {gpu.subject}", gpu.subject, seen, ("sudo ipmitool sel list", "sudo reboot"))


@check("gpu.power-cable-missing", Severity.FAIL, layer="hardware", after=["host.no-gpu"])
def power_cable_missing(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU lacks its power cable.

    Why: the card sees that an auxiliary power plug is missing or not fully in; it runs slowed down,
    or not at all.
    Fix: power the machine off and seat every power cable of the card, without adapters where that can be had.
    Source: nvidia-smi(1), return value 8; https://docs.nvidia.com/deploy/xid-errors/ (Xid 54)
    """
    for gpu in gpus.gpus:
        if gpu.error and gpu.error.code == _NO_POWER:
            yield Finding(
                f"{gpu.subject} reports insufficient power", gpu.subject, (Seen("NVML", str(gpu.error), "NVML"),)
            )
    for event in xids(host.kernel_log):
        if event.code == 54:
            yield Finding(
                f"{event.address} has no auxiliary power", event.address, (Seen("kernel log", str(event), event.where),)
            )


@check("gpu.bar1-unassigned", Severity.FAIL, layer="hardware", after=["host.no-gpu"])
def bar1_unassigned(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU's memory window (BAR1) has no address.

    Why: the firmware, or the virtual machine's, found no room in the 64-bit address space for the GPU's large window.
    The driver then refuses the card, or nothing can be copied to it at full speed.
    Fix: on bare metal switch on Above 4G Decoding (and Resizable BAR) in the firmware; in a guest use UEFI with a large
    enough 64-bit MMIO range; pci=realloc on the kernel command line helps some boards.
    Source: https://github.com/NVIDIA/gpu-operator/issues/492;
    https://github.com/NVIDIA/open-gpu-kernel-modules/issues/862
    """
    for line in readable_log(host):
        if "NVRM: BAR" in line and " is 0M @ 0x0" in line:
            address = line.rpartition("(PCI:")[2].rstrip(") .")
            yield Finding(
                f"{address} has a BAR without an address", address, (Seen("kernel log", line.strip(), "dmesg"),)
            )
    for gpu in gpus.working:
        if gpu.bar1_mib == 0:
            yield Finding(f"{gpu.subject} has a BAR1 of 0 MiB", gpu.subject, (Seen("BAR1", "0 MiB", "NVML"),))


@check("gpu.dropped-by-driver", Severity.FAIL, layer="driver", after=["driver.nvml-fails"])
def dropped_by_driver(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU is too old for the installed driver branch.

    Why: R580 was the last branch for Maxwell, Pascal and Volta: later drivers load without a complaint and leave such a
    card alone.
    Fix: install the newest driver of the branch that is named, and pin it; an image of CUDA 12 goes with it.
    Source: https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
    """
    branch = int(gpus.driver_version.partition(".")[0])
    for device, row in _capabilities(host):
        if row.last_branch is not None and branch > row.last_branch:
            seen = (
                Seen("GPU", f"{row.arch}, compute capability {row.cc}", device.address),
                Seen("last driver branch for it", f"R{row.last_branch}", row.source),
                Seen("driver", gpus.driver_version, "NVML"),
            )
            yield Finding(f"{device.address} needs R{row.last_branch} or older", device.address, seen)


@check("gpu.newer-than-driver", Severity.FAIL, layer="driver", after=["driver.nvml-fails"], fix="driver")
def newer_than_driver(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU is too new for the installed driver branch.

    Why: the driver does not know the card and leaves it alone; nvidia-smi does not list it.
    Fix: install a driver of the branch that is named, or newer, with open kernel modules.
    Source: https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
    """
    branch = int(gpus.driver_version.partition(".")[0])
    for device, row in _capabilities(host):
        if row.first_branch is not None and branch < row.first_branch:
            seen = (
                Seen("GPU", f"{row.arch}, compute capability {row.cc}", device.address),
                Seen("first driver branch for it", f"R{row.first_branch}", row.source),
                Seen("driver", gpus.driver_version, "NVML"),
            )
            yield Finding(f"{device.address} needs R{row.first_branch} or newer", device.address, seen)


@check(
    "gpu.not-initialised",
    Severity.FAIL,
    layer="hardware",
    after=["driver.nvml-fails", "gpu.lost", "gpu.bar1-unassigned", "gpu.dropped-by-driver", "gpu.newer-than-driver"],
)
def not_initialised(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU is on the PCI bus and was not brought up.

    Why: it is missing from nvidia-smi and from every program, with no error anywhere else: an engine that asks for all
    GPUs starts on fewer. The driver's reason stands in the kernel log.
    Fix: read that reason: journalctl -k | grep -E 'NVRM|nvidia'. RmInitAdapter failures mean the card, its power or its
    firmware; "not supported" means a driver branch or a kernel module flavour that does not know this GPU.
    Source: https://docs.nvidia.com/deploy/gpu-debug-guidelines/
    """
    if host.in_container:
        raise NotApplicable("a container may be given fewer GPUs than its host's PCI bus shows")
    known = {gpu.bus_id for gpu in gpus.gpus if gpu.error is None}
    nameless = sum(gpu.error is not None for gpu in gpus.gpus)
    missing = [d for d in host.gpus if d.driver not in _ELSEWHERE and d.address not in known]
    if len(missing) <= nameless:
        return
    for device in missing:
        row = knowledge.load().gpu_by_pci(device.device)
        seen = (
            Seen("on the PCI bus", row.name if row else device.ids, f"/sys/bus/pci/devices/{device.address}"),
            Seen("bound driver", device.driver or "none", f"/sys/bus/pci/devices/{device.address}/driver"),
            Seen("GPUs in NVML", str(len(gpus.gpus)), "NVML"),
            *(Seen("kernel log", line.strip(), "dmesg") for line in _said_of(host, device.address)[-3:]),
        )
        yield Finding(f"{device.address} is not among the driver's GPUs", device.address, seen)


@check(
    "gpu.no-handle", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost", "gpu.power-cable-missing"]
)
def no_handle(gpus: Gpus) -> Iterator[Finding]:
    """NVML lists a GPU and cannot open it.

    Why: what NVML cannot open, no program can use.
    Fix: look at the modes of /dev/nvidia* and, in a container, at its device rules; else at the kernel log.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t)
    """
    for gpu in gpus.gpus:
        if gpu.error and not gpu.lost and gpu.error.code != _NO_POWER:
            row = knowledge.load().nvml_code(gpu.error.code)
            meaning = f": {row.meaning}" if row else ""
            yield Finding(
                f"{gpu.subject}: {gpu.error.name}{meaning}", gpu.subject, (Seen("NVML", str(gpu.error), "NVML"),)
            )


@check("gpu.recovery-needed", Severity.FAIL, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def recovery_needed(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU wants to be reset, or its machine to be rebooted.

    Why: after an error the driver has decided what brings the GPU back, and until then programs on it fail or never
    start. Its word stands above the general advice for the Xid that came before.
    Fix: do what it asks for, and not less: a reset does not do where a reboot is asked for.
    Source: https://docs.nvidia.com/deploy/xid-errors/ (Xid 154); nvml.h, nvmlDeviceGpuRecoveryAction_t
    """
    for gpu in gpus.working:
        logged = [event for event in supporting(host) if event.on(gpu.bus_id)]
        said = next((event for event in reversed(logged) if event.code == RECOVERY_CHANGED), None)
        value = gpu.recovery_action
        if value is None and said and said.recovery:
            value = said.recovery[0]
        if _RESET_REQUIRED in gpu.codes:
            value = value or 1
        if value:
            row = knowledge.load().recovery(value)
            seen = [Seen("recovery action", row.text if row else str(value), "NVML")]
            seen += [Seen("kernel log", str(event), event.where) for event in logged[-3:]]
            action = row.do if row else "ask the vendor: this recovery action is newer than our tables"
            yield Finding(f"{gpu.subject}: {action}", gpu.subject, tuple(seen))


@check("gpu.inforom-corrupt", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def inforom_corrupt(gpus: Gpus) -> Iterator[Finding]:
    """A GPU's infoROM is corrupt.

    Why: the card's own record of serial number, limits and retired memory cannot be trusted, and settings do not last.
    Fix: open a replacement case; the vendor may have a tool to rewrite it.
    Source: nvidia-smi(1), return value 14; https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceValidateInforom)
    """
    for gpu in gpus.working:
        if _CORRUPTED_INFOROM in gpu.codes:
            yield Finding(f"{gpu.subject}: corrupt infoROM", gpu.subject, (Seen("NVML", "CORRUPTED_INFOROM", "NVML"),))


@check("gpu.models-mixed", Severity.INFO, layer="hardware", after=["driver.nvml-fails"])
def models_mixed(gpus: Gpus) -> Iterator[Finding]:
    """GPUs of different models are in this host.

    Why: tensor parallelism runs at the pace and within the memory of the weakest card, and a profile measured on one
    model says nothing about another.
    Fix: give each engine GPUs of one model: --gpu-ids, or one engine for each model.
    Source: https://docs.vllm.ai/en/latest/serving/parallelism_scaling/
    """
    models: dict[str, list[str]] = {}
    for gpu in gpus.working:
        models.setdefault(gpu.name, []).append(str(gpu.index))
    if len(models) > 1:
        seen = tuple(Seen(name, "GPU " + ", ".join(indexes), "NVML") for name, indexes in models.items())
        yield Finding(f"{len(models)} models of GPU are mixed", seen=seen)


def _said_of(host: Host, address: str) -> list[str]:
    """Return the driver's lines about a device in the kernel log, none where it may not be read."""
    return [line for line in readable_log(host) if "NVRM" in line and address.rpartition(".")[0] in line.lower()]


def _capabilities(host: Host) -> list[tuple[PciDevice, Capability]]:
    """Return the GPUs whose model the tables have for sure, each with its compute capability."""
    known = knowledge.load()
    models = [(device, known.gpu_by_pci(device.device)) for device in host.gpus]
    rows = [(device, known.capability(model.cc)) for device, model in models if model]
    return [(device, row) for device, row in rows if row and row.sure]
