"""The kernel log in; a GPU whose own firmware does not answer the driver out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.host import Host, log_matches
from lpxdoctor.facts.xid import xids

_SILENT = (119, 120)
_LINK_FAILED = 74
_RPC = r"[Tt]imeout .*waiting for (?:\S+ )?RPC .*GSP"


@check("gpu.gsp-timeout", Severity.FAIL, layer="driver", after=["host.no-gpu", "host.gpu-does-not-answer", "gpu.lost"])
def gsp_timeout(host: Host) -> Iterator[Finding]:
    """A GPU's firmware (GSP) does not answer the driver.

    Why: most of the driver runs on the GPU's own processor (GSP). When it does not answer (Xid 119, or 120 where it has
        crashed), every call for that GPU waits: nvidia-smi hangs, engines time out. Early releases of a driver branch
        have such flaws; a card that has fallen off the bus, or bad memory, looks the same for a moment. Behind a fatal
        error of an NVLink (Xid 74) it follows from that one.
    Fix: keep the log (sudo nvidia-bug-report.sh), reboot, and upgrade the driver within its branch: 525 was cured by
        525.105.17. With the proprietary module, until then: options nvidia NVreg_EnableGpuFirmware=0 in modprobe.d.
        A GPU on which it comes back under a current driver is to be replaced.
    Source: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/446; https://docs.nvidia.com/deploy/xid-errors/
    """
    logged = [event for event in xids(host.kernel_log) if event.code in (*_SILENT, _LINK_FAILED)]
    if logged and logged[0].code == _LINK_FAILED and "fatal" in logged[0].text:
        return
    events = [event for event in logged if event.code in _SILENT]
    for address in dict.fromkeys(event.address for event in events):
        mine = [event for event in events if event.address == address]
        seen = tuple(Seen("kernel log", str(event), event.where) for event in mine[-2:])
        yield Finding(f"Xid {mine[-1].code} on {address}, {len(mine)} times", address, seen)
    lines = () if events else log_matches(host.kernel_log, _RPC)
    if lines:
        yield Finding("the driver waited for it in vain", seen=(Seen("kernel log", lines[-1].strip()[:200], "dmesg"),))
