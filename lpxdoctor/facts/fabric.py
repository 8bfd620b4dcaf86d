"""What systemd and NVIDIA's own programs say in, what manages the NVSwitch fabric of this host out."""

import re
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lpxdoctor.evidence import Command, Evidence, Listing, Probe, Unreadable
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.fact import Fact, known

UNIT = "nvidia-fabricmanager.service"
SHOW = Command(("systemctl", "show", UNIT, "--property=LoadState,ActiveState,SubState,UnitFileState,Result"))
VERSION = Command(("nv-fabricmanager", "--version"))
SUBNET_MANAGER = Listing("/opt/nvidia/nvlsm/sbin/nvlsm")  # started by Fabric Manager's own start script
MAD_MODULE = Listing("/sys/module/ib_umad")  # how Fabric Manager reaches NVSwitches from the fourth generation on

_VERSION = re.compile(r"version is\s*:\s*(\d+(?:\.\d+)+)", re.IGNORECASE)


@dataclass(frozen=True)
class Unit:
    """A systemd unit: "active"/"inactive"/"failed", "running"/..., "enabled"/"disabled"/..., and why it ended."""

    active: str
    sub: str
    enabled: str
    result: str

    @property
    def running(self) -> bool:
        """Whether it runs or is about to."""
        return self.active in ("active", "activating", "reloading")

    def __str__(self) -> str:
        why = f", {self.result}" if self.result not in ("", "success") else ""
        return f"{self.active} ({self.sub}{why}), {self.enabled or 'no unit file state'}"


@dataclass(frozen=True, kw_only=True)
class Fabric(Fact):
    """Fabric Manager and what it needs. Whether a host needs it is told by Host and Gpus."""

    probes: ClassVar[tuple[Probe, ...]] = (SHOW, VERSION, SUBNET_MANAGER, MAD_MODULE)

    unit: Unit | None  # None where systemd knows no such unit
    version: str | None  # of the installed Fabric Manager; None where there is none
    subnet_manager: bool
    mad_module: bool

    @property
    def installed(self) -> bool:
        """Whether there is a Fabric Manager to start."""
        return self.version is not None or self.unit is not None

    @classmethod
    def parse(cls, evidence: Evidence) -> "Fabric":
        """Return the facts that the answers hold; never raises."""
        return cls(
            unit=known(partial(_unit, evidence)),
            version=known(partial(_version, evidence)),
            subnet_manager=known(lambda: bool(evidence.found(SUBNET_MANAGER))),
            mad_module=known(lambda: bool(evidence.found(MAD_MODULE))),
        )


def _unit(evidence: Evidence) -> Unit | None:
    fields = assignments(evidence.text(SHOW))
    if fields["LoadState"] == "not-found":
        return None
    return Unit(fields["ActiveState"], fields["SubState"], fields["UnitFileState"], fields["Result"])


def _version(evidence: Evidence) -> str | None:
    if evidence.absent(VERSION):
        return None
    answer = evidence.value(VERSION)
    return version(answer["stdout"] + answer["stderr"])


def version(text: str) -> str:
    """Return the version in what nv-fabricmanager prints; raise Unreadable where there is none."""
    found = _VERSION.search(text)
    if not found:
        raise Unreadable(f"nv-fabricmanager --version printed no version: {text.strip()[:80]!r}")
    return found[1]


def same_driver(one: str, other: str) -> bool:
    """Whether two versions of the driver stack are the same; NVML leaves out the last part of some (580.105)."""
    parts = one.split("."), other.split(".")
    length = min(map(len, parts))
    return parts[0][:length] == parts[1][:length]
