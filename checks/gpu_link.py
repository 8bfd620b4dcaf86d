"""How each GPU is joined to its host and to other GPUs in; links that are narrower, slower or fewer than can be out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.policy import Policy


@check("gpu.pcie-width-degraded", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def pcie_width_degraded(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """A GPU has fewer PCI Express lanes than it can use.

    Why: loading weights, and traffic between GPUs without NVLink, take longer in proportion. A link that trained with
    fewer lanes than it has mostly points to dirt, a riser or a seat, and often gets worse. The way up to the root port
    counts too: a switch's narrow uplink slows every GPU below it.
    Fix: power off, reseat the card or its riser; look in the firmware for a slot set to split (bifurcation). A slot
    that is narrow on purpose: waive it in policy.toml.
    Source: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html (PCIe plugin)
    """
    subjects = {gpu.bus_id: gpu.subject for gpu in gpus.working}
    bridges = {bridge.address: bridge for bridge in host.bridges}
    widest: dict[str, int] = {}  # bridge -> lanes that the widest GPU below can use
    for device in host.gpus:
        if device.width is None or device.width_max is None:
            continue
        for address in device.above:
            widest[address] = max(widest.get(address, 0), device.width_max)
        if device.width < device.width_max:
            slot = bridges.get(device.above[-1]) if device.above else None
            seen = [
                Seen("lanes in use", f"x{device.width}", f"/sys/bus/pci/devices/{device.address}/current_link_width"),
                Seen("lanes of the GPU", f"x{device.width_max}", "max_link_width"),
            ]
            if slot and slot.width_max:
                seen.append(Seen("lanes of the slot", f"x{slot.width_max}", slot.address))
            subject = subjects.get(device.address, device.address)
            yield Finding(f"{subject} runs x{device.width} of x{device.width_max}", subject, tuple(seen))
    for address, lanes in widest.items():
        bridge = bridges.get(address)
        if bridge and bridge.width and bridge.width_max and bridge.width < min(bridge.width_max, lanes):
            seen = [
                Seen("lanes in use", f"x{bridge.width}", address),
                Seen("lanes of the bridge", f"x{bridge.width_max}"),
            ]
            yield Finding(
                f"bridge {address} above a GPU runs x{bridge.width} of x{bridge.width_max}", address, tuple(seen)
            )


@check("gpu.pcie-speed-low-under-load", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost"])
def pcie_speed_low_under_load(gpus: Gpus, policy: Policy) -> Iterator[Finding]:
    """A busy GPU's PCI Express link runs below its speed.

    Why: an idle link slows down to save power and that means nothing; under load it must be at full speed, or copies
    between host and GPU take two or four times as long.
    Fix: look in the firmware for a slot fixed at an older generation or aggressive ASPM; then reseat the card.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetCurrPcieLinkGeneration)
    """
    idle = True
    for gpu in gpus.working:
        if (gpu.utilization_percent or 0) < policy.limits.busy_percent:
            continue
        idle = False
        if gpu.pcie_generation and gpu.pcie_generation_max and gpu.pcie_generation < gpu.pcie_generation_max:
            seen = (
                Seen("generation now", str(gpu.pcie_generation), "NVML"),
                Seen("generation that GPU and slot can do", str(gpu.pcie_generation_max), "NVML"),
                Seen("utilization", f"{gpu.utilization_percent} %", "NVML"),
            )
            yield Finding(f"{gpu.subject} is busy on a generation {gpu.pcie_generation} link", gpu.subject, seen)
    if idle:
        raise NotApplicable("no GPU is busy, and the speed of an idle link tells nothing")


@check(
    "gpu.nvlink-down", Severity.WARN, layer="hardware", after=["driver.nvml-fails", "gpu.lost", "fabric.not-completed"]
)
def nvlink_down(gpus: Gpus) -> Iterator[Finding]:
    """A GPU has fewer NVLinks up than others of its model in this host.

    Why: traffic between GPUs falls back to the links that are left, or to PCI Express, and collectives run at the pace
    of the slowest pair. Where all GPUs are alike in this, as with bridges or a guest without NVLink, nothing is wrong.
    Fix: nvidia-smi nvlink -s; reset the GPUs (all at once on an NVSwitch board); reseat bridge or board.
    Source: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetNvLinkState)
    """
    if len(gpus.working) < 2:
        raise NotApplicable("this host has one GPU")
    most: dict[str, int] = {}
    for gpu in gpus.working:
        most[gpu.name] = max(most.get(gpu.name, 0), sum(gpu.nvlinks))
    for gpu in gpus.working:
        up = sum(gpu.nvlinks)
        if up < most[gpu.name]:
            seen = (
                Seen("links up", f"{up} of {len(gpu.nvlinks)}", "NVML"),
                Seen("others' links up", str(most[gpu.name])),
            )
            yield Finding(f"{gpu.subject} has {most[gpu.name] - up} NVLinks down", gpu.subject, seen)
