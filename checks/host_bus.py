"""The kernel log and the NVIDIA devices in; errors of the PCI bus on the way to them out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.host import Host, log_matches

# pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Requester ID)
_ERROR = r"PCIe Bus Error: severity=Uncorrect"


@check("host.pcie-errors", Severity.WARN, layer="hardware", after=["host.no-gpu", "host.gpu-does-not-answer"])
def pcie_errors(host: Host) -> Iterator[Finding]:
    """The PCI bus has reported errors that it could not correct on the way to a GPU.

    Why: a card that loses packets falls off the bus sooner or later (Xid 79). Receiver errors come from the link: seat,
        riser, cable, or a slot that is run too fast.
    Fix: seat the card and its riser anew; set the slot to a lower PCIe generation in the firmware for a trial; look at
        whether the same slot or the same card does it.
    Source: https://docs.kernel.org/PCI/pcieaer-howto.html
    """
    lines = log_matches(host.kernel_log, _ERROR)
    devices = (*host.gpus, *host.nvswitches) if lines else ()
    for address in dict.fromkeys(place for device in devices for place in (device.address, *device.above)):
        said = [line.strip() for line in lines if address in line]
        if said:
            times = "one error" if len(said) == 1 else f"{len(said)} errors"
            yield Finding(f"{address}: {times}", address, (Seen("kernel log", said[-1][:200], "dmesg"),))
