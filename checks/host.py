"""Facts of the machine in, what is wrong with its GPUs as hardware out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.fact import told
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.policy import Policy

_REDIRECTS = {0x04: "ReqRedir", 0x08: "CmpltRedir", 0x20: "EgressCtrl"}


@check("host.no-gpu", Severity.FAIL, layer="hardware")
def no_gpu(host: Host, gpus: Gpus) -> Iterator[Finding]:
    """There is no NVIDIA GPU on the PCI bus.

    Why: the kernel lists every device that answered when the machine started. What is not in that list cannot be
        reached by any driver, so no driver, CUDA or container setting will bring it back.
    Fix: in a virtual machine, attach the GPU to it (PCI passthrough, or an instance type that has one) and start it
        anew. On bare metal: power off, reseat the card and its power cables, enable the slot and "Above 4G decoding" in
        the firmware, and look whether the card is listed there. Then:
            lspci -nn -d 10de:
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (pre-installation: verify the GPU)
    """
    if host.gpus:
        return
    if gpus.opened:
        raise NotApplicable("NVML opens a GPU although no PCI bus shows one: a sandbox, WSL, or a Jetson")
    others = [f"{device.address} {device.ids}" for device in host.pci if device.vendor == 0x10DE]
    yield Finding(
        f"none of the {len(host.pci)} PCI devices of this machine is an NVIDIA GPU",
        seen=(
            Seen("PCI devices", str(len(host.pci)), "/sys/bus/pci/devices"),
            Seen("NVIDIA, but no GPU", ", ".join(others) or "none", "vendor 10de"),
            Seen("this machine", told(lambda: host.virtualization or "bare metal")),
        ),
    )


@check("host.gpus-missing", Severity.FAIL, layer="hardware", after=["host.no-gpu"])
def gpus_missing(host: Host, policy: Policy) -> Iterator[Finding]:
    """The number of GPUs on the PCI bus is not the expected one.

    Why: a GPU that does not answer when the machine starts is not listed at all, and nothing complains: tensor
        parallelism over the planned number fails, or the host silently serves less than it should.
    Fix: compare the addresses with the slots (`lspci -t`, `dmidecode -t slot`), power off, reseat the missing card and
        its cables, and look at the firmware's own list. If the number is meant to be this one, set it:
            gpus = N  in [expect] of /etc/lpxdoctor/policy.toml
    Source: https://github.com/Azure/azurehpc-health-checks (GPU count against what the machine type has)
    """
    if policy.expect.gpus is None:
        raise NotApplicable("no number of GPUs is expected: [expect] gpus is not set in policy.toml")
    if len(host.gpus) != policy.expect.gpus:
        yield Finding(
            f"{len(host.gpus)} GPUs answer on the PCI bus, {policy.expect.gpus} are expected",
            seen=tuple(Seen(gpu.address, gpu.ids, "/sys/bus/pci/devices") for gpu in host.gpus),
            do=("lspci -nn -d 10de:", "sudo dmidecode -t slot"),
        )


@check("host.gpu-does-not-answer", Severity.FAIL, layer="hardware", after=["host.no-gpu"])
def gpu_does_not_answer(host: Host) -> Iterator[Finding]:
    """A GPU no longer answers on the PCI bus.

    Why: its configuration space reads as all ones, which means that the link to it is down (lspci shows "rev ff", the
        driver reports Xid 79). Every program that uses it hangs or fails, and no driver setting brings it back.
    Fix: drain the host and power it off, not only reboot: a card that lost its link often needs power removed. If it
        comes again, check power supply, cables and temperature under load, try another slot, then have it replaced.
    Source: https://docs.nvidia.com/deploy/xid-errors/ (Xid 79: GPU has fallen off the bus)
    """
    for gpu in host.gpus:
        if gpu.gone:
            yield Finding(
                "its configuration space reads as all ones: the link to it is down",
                subject=gpu.address,
                seen=(
                    Seen("configuration space", "ff ff ff ff ...", f"/sys/bus/pci/devices/{gpu.address}/config"),
                    Seen("device", gpu.ids, "as it was when the machine started"),
                    Seen("driver", gpu.driver or "none", "sysfs"),
                ),
                do=("sudo dmesg | grep -e Xid -e AER -e pcieport", "sudo poweroff"),
            )


@check("host.iommu-translates", Severity.WARN, layer="hardware", after=["host.no-gpu"])
def iommu_translates(host: Host) -> Iterator[Finding]:
    """The IOMMU translates what the GPUs send each other.

    Why: with several GPUs and no NVSwitch, peer-to-peer copies go over PCI Express. An IOMMU that translates addresses
        (anything but pass-through) makes such copies slow, and on some platforms wrong or never ending: tensor-parallel
        start-up hangs in NCCL without an error.
    Fix: add iommu=pt to the kernel's command line (on Debian and Ubuntu: GRUB_CMDLINE_LINUX in /etc/default/grub, then
        update-grub; on RHEL: grubby --update-kernel=ALL --args=iommu=pt) and reboot. Virtual machines started on this
        host with passed-through devices need the IOMMU on: pt keeps it on for them.
    Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs
        https://github.com/vllm-project/vllm/issues/33041
    """
    _only_where_peers_meet_on_pci_express(host)
    translated = [gpu for gpu in host.gpus if gpu.iommu_type not in ("", "identity")]
    if translated:
        yield Finding(
            f"{len(translated)} of {len(host.gpus)} GPUs are in IOMMU groups that translate addresses",
            seen=tuple(
                Seen(gpu.address, f"group {gpu.iommu_group}: {gpu.iommu_type}", "/sys/kernel/iommu_groups")
                for gpu in translated
            ),
        )


@check("host.acs-redirects", Severity.WARN, layer="hardware", after=["host.no-gpu"])
def acs_redirects(host: Host) -> Iterator[Finding]:
    """PCI bridges send traffic between the GPUs on a detour through the root complex.

    Why: Access Control Services (ACS) on a bridge above a GPU force every packet to a peer (P2P) up to the processor
        and down again. NCCL collectives over PCI Express become slow, and with an IOMMU they can hang for good.
    Fix: switch ACS off in the firmware of the machine (often beside the IOMMU or virtualisation settings); until then
        clear it on the bridges shown, which lasts until the next boot:
            sudo setpci -s BRIDGE ECAP_ACS+6.w=0000
        Do not where untrusted virtual machines own devices behind that bridge: ACS keeps them apart.
    Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs
        https://github.com/NVIDIA/nccl/issues/2079
    """
    _only_where_peers_meet_on_pci_express(host)
    above = {address for gpu in host.gpus for address in gpu.above}
    control = {bridge.address: bridge.acs or 0 for bridge in host.bridges if bridge.address in above}
    redirecting = {address: word for address, word in control.items() if any(word & bit for bit in _REDIRECTS)}
    if redirecting:
        yield Finding(
            f"{len(redirecting)} of {len(control)} bridges above the GPUs redirect traffic between them",
            seen=tuple(
                Seen(address, f"0x{word:04x} " + " ".join(n for b, n in _REDIRECTS.items() if word & b), "ACSCtl")
                for address, word in redirecting.items()
            ),
            do=tuple(f"sudo setpci -s {address} ECAP_ACS+6.w=0000" for address in redirecting),
        )


def _only_where_peers_meet_on_pci_express(host: Host) -> None:
    if len(host.gpus) < 2:
        raise NotApplicable("one GPU has no peer")
    if host.nvswitches:
        raise NotApplicable("the GPUs of this host reach each other through NVSwitch")
    if host.virtualization:
        raise NotApplicable(f"this is no bare metal ({host.virtualization}): IOMMU and ACS are set on its host")
