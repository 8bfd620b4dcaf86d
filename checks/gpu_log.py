"""The errors that the driver has logged by number since boot in; what each means and asks for out."""

from collections.abc import Callable, Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.xid import RECOVERY_CHANGED, XidEvent, xids

_PART_GROUPS = ("hardware", "memory", "bus", "firmware", "nvlink", "power")


@check("gpu.xid-hardware", Severity.WARN, layer="hardware", after=["host.no-gpu", "gpu.lost", "gpu.recovery-needed"])
def xid_hardware(host: Host) -> Iterator[Finding]:
    """A GPU has had hardware errors since boot (Xid).

    Why: an Xid of this kind names a fault of the card, its memory, its link or its firmware. The driver may have
    recovered from it; the next one comes under load.
    Fix: what stands beside each code; `nvidia-bug-report.sh` before the reboot keeps what the vendor asks for.
    Source: https://docs.nvidia.com/deploy/xid-errors/
    """
    yield from _xid_findings(host, lambda group, severity: group in _PART_GROUPS and severity in ("error", "critical"))


@check("gpu.xid-driver", Severity.WARN, layer="driver", after=["host.no-gpu", "gpu.lost", "gpu.recovery-needed"])
def xid_driver(host: Host) -> Iterator[Finding]:
    """The driver has logged errors of its own work on a GPU since boot.

    Why: an engine of the GPU or a channel failed in a way that is mostly the driver's or its firmware's doing; the
    program that was running was stopped.
    Fix: what stands beside each code; if it comes back, update the driver within its branch.
    Source: https://docs.nvidia.com/deploy/xid-errors/
    """
    yield from _xid_findings(host, lambda group, severity: group == "driver" and severity in ("error", "critical"))


@check("gpu.xid-program", Severity.INFO, layer="engine", after=["host.no-gpu", "gpu.lost", "gpu.recovery-needed"])
def xid_program(host: Host) -> Iterator[Finding]:
    """A program made a GPU fault since boot; the GPU is well.

    Why: an illegal address or instruction in a kernel of the application ends that and nothing else. It is worth
        knowing when an engine died at that time; again and again on one GPU and with any program, it is the card after
        all.
    Fix: match the process and the time with the engine's log; update the engine, or report it there.
    Source: https://docs.nvidia.com/deploy/xid-errors/ (13, 31, 43, 45)
    """
    yield from _xid_findings(host, lambda group, _: group == "program")


@check("gpu.xid-minor", Severity.INFO, layer="hardware", after=["host.no-gpu"])
def xid_minor(host: Host) -> Iterator[Finding]:
    """The driver has logged notices of a GPU since boot that need nothing now.

    Why: such as a row that was put on the list to be replaced: the GPU goes on; have a look at the next stop.
    Fix: what stands beside each code.
    Source: https://docs.nvidia.com/deploy/xid-errors/
    """
    yield from _xid_findings(
        host, lambda group, severity: group not in ("program", "notice") and severity in ("info", "warning")
    )


@check("gpu.xid-unknown", Severity.INFO, layer="hardware", after=["host.no-gpu"])
def xid_unknown(host: Host) -> Iterator[Finding]:
    """The driver has logged an Xid that our table does not have.

    Why: drivers add codes, and what is not in the table is not guessed.
    Fix: look the code up in NVIDIA's catalogue of the driver that you have.
    Source: https://docs.nvidia.com/deploy/xid-errors/
    """
    for events in _by_code(host).values():
        if knowledge.load().xid(events[0].code) is None:
            yield Finding(
                f"Xid {events[0].code}, {_times(events)}",
                events[0].address,
                (Seen("kernel log", str(events[-1]), events[-1].where),),
            )


def _times(events: list[XidEvent]) -> str:
    return "once" if len(events) == 1 else f"{len(events)} times"


def _by_code(host: Host) -> dict[tuple[str, int], list[XidEvent]]:
    found: dict[tuple[str, int], list[XidEvent]] = {}
    for event in xids(host.kernel_log):
        found.setdefault((event.address, event.code), []).append(event)
    return found


def _xid_findings(host: Host, wanted: Callable[[str, str], bool]) -> Iterator[Finding]:
    """Yield one finding for each GPU and code of the kinds that are wanted, with what the table says to do."""
    known = knowledge.load()
    for events in _by_code(host).values():
        row = known.xid(events[0].code)
        if row and row.code != RECOVERY_CHANGED and wanted(row.group, row.severity):
            advice = (known.xid_actions[row.action], *((row.also,) if row.also else ()))
            yield Finding(
                f"Xid {row.code}, {_times(events)}: {row.meaning}",
                events[0].address,
                (Seen("kernel log", str(events[-1]), events[-1].where),),
                advice,
            )
