"""Look at hosts: an inventory in, the evidence of each with what it is judged to be, or why it gave none, out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lpxdoctor import fleet
from lpxdoctor.check import Check
from lpxdoctor.evaluate import Judgement, probes_of
from lpxdoctor.evidence import Evidence, File, Unreadable
from lpxdoctor.fix import work
from lpxdoctor.fleet import FleetHost, NoAnswer

# Of the machine and, for a container, whose boot id is its host's, of its first process.
_BOOT_ID, _INIT = File("/proc/sys/kernel/random/boot_id"), File("/proc/1/stat")

Judge = Callable[[Evidence], Judgement]


@dataclass(frozen=True)
class Seen:
    """A host as it answered, and as it is judged."""

    evidence: Evidence
    judgement: Judgement

    @property
    def booted(self) -> str:
        """What tells one boot from another, "" where that could not be read."""
        try:
            started = self.evidence.text(_INIT).rpartition(")")[2].split()[19]  # proc(5) numbers the fields
            return f"{self.evidence.text(_BOOT_ID).strip()} {started}"
        except (Unreadable, IndexError):
            return ""


@dataclass(frozen=True, kw_only=True)
class Looker:
    """How hosts are looked at, before and after alike."""

    checks: Sequence[Check[...]]
    judge: Judge
    container_test: bool

    def look(self, hosts: Sequence[FleetHost]) -> Mapping[str, Seen | NoAnswer]:
        """Return what every host is, or why it does not say."""
        probes = (*probes_of(self.checks), *work.PROBES, _BOOT_ID, _INIT)
        rows = fleet.collect(hosts, probes, container_test=self.container_test)
        return {name: row if isinstance(row, NoAnswer) else Seen(row, self.judge(row)) for name, row in rows.items()}
