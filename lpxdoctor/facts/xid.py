"""Lines of the kernel log in; the errors that NVIDIA's drivers report there by number out."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.host import Host

RECOVERY_CHANGED = 154

# NVRM: Xid (PCI:0000:65:00): 79, pid=..., name=..., text. Old drivers leave out "PCI:", the domain, pid and name.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
_PROCESS = re.compile(r"pid='?(\d+)'?, name='?([^,']*)'?,? ?")
_NOBODY = re.compile(r"pid='?<unknown>'?, name='?<unknown>'?,? ?")
_RECOVERY = re.compile(r"recovery action changed from \S+ \([^)]*\) to 0x([0-9a-fA-F]+) \(([^)]*)\)", re.IGNORECASE)
# nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (.*)")


@dataclass(frozen=True)
class XidEvent:
    """One Xid: on which GPU ("0000:65:00"), the process that it hit ("" and 0 where none), and the line's own words."""

    address: str
    code: int
    pid: int
    process: str
    text: str

    @property
    def where(self) -> str:
        """Where it stands."""
        return f"dmesg, Xid {self.code} on {self.address}"

    def __str__(self) -> str:
        return self.text + (f" [{self.process}, pid {self.pid}]" if self.process else "")

    @property
    def recovery(self) -> tuple[int, str] | None:
        """Of an Xid 154, the recovery action that the driver now asks for: NVML's value and its text."""
        found = _RECOVERY.search(self.text) if self.code == RECOVERY_CHANGED else None
        return (int(found[1], 16), found[2]) if found else None

    def on(self, bus_id: str) -> bool:
        """Whether it is about the GPU at this address."""
        return self.address == bus_id.lower().rpartition(".")[0]


@dataclass(frozen=True)
class SwitchEvent:
    """One SXid: on which NVSwitch, and whether it was fatal."""

    address: str
    code: int
    fatal: bool
    text: str


def xids(lines: Iterable[str]) -> tuple[XidEvent, ...]:
    """Return the Xids of a log, oldest first."""
    return tuple(_event(found) for line in lines if (found := _XID.search(line)))


def readable_log(host: Host) -> tuple[str, ...]:
    """Return the kernel log, nothing where it may not be read: for what only supports a finding."""
    try:
        return host.kernel_log
    except Unreadable:
        return ()


def supporting(host: Host) -> tuple[XidEvent, ...]:
    """Return the Xids of a host's log, none where it may not be read."""
    return xids(readable_log(host))


def _event(found: re.Match[str]) -> XidEvent:
    rest = _NOBODY.sub("", found[3] or "", count=1)
    who = _PROCESS.match(rest)
    return XidEvent(
        address=_full(found[1]),
        code=int(found[2]),
        pid=int(who[1]) if who else 0,
        process=who[2] if who else "",
        text=rest[who.end() :] if who else rest,
    )


def _full(address: str) -> str:
    """Return domain:bus:device in lower case, whatever of it the line had."""
    parts = address.lower().partition(".")[0].split(":")
    return ":".join([*["0000"] * (3 - len(parts)), *parts])


def switch_events(lines: Iterable[str]) -> tuple[SwitchEvent, ...]:
    """Return the SXids of a log, oldest first."""
    return tuple(
        SwitchEvent(_full(found[1]), int(found[2]), not found[3].lower().startswith("non-fatal"), found[3])
        for line in lines
        if (found := _SXID.search(line))
    )
