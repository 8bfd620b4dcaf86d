"""One host on its way through a run: what is known of it in, the result that is reported of it out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lpxdoctor.fix import state
from lpxdoctor.fix.look import Seen
from lpxdoctor.fix.outcome import GONE, HostResult
from lpxdoctor.fix.plan import Plan
from lpxdoctor.fix.state import Record
from lpxdoctor.fleet import FleetHost


@dataclass(kw_only=True)
class Patient:
    """A host: how it was, how it is now, its record, and why it was refused or failed."""

    host: FleetHost
    before: Seen | None = None
    after: Seen | None = None
    plan: Plan | None = None
    record: Record | None = None  # from the moment on when something may be changed
    refused: str = ""
    failure: str = ""
    rebooted: bool = False  # since the playbooks of its record ran
    rebooting: bool = False  # now, and a unit goes on there

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.host.name

    @property
    def local(self) -> bool:
        """Whether it is this machine."""
        return self.host.variables.get("ansible_connection") == "local"

    @property
    def runs(self) -> bool:
        """Whether something is to be run on it, or looked at after a run."""
        return self.record is not None and not self.refused and not self.failure

    @property
    def next_boot(self) -> tuple[str, ...]:
        """What still counts from the next boot on only."""
        steps = (*self.plan.steps, *self.plan.later) if self.plan and not self.rebooted else ()
        return tuple(id_ for step in steps for id_ in step.next_boot)

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The targets that are not gone."""
        seen = self.after or self.before
        gone = {result.check.id for result in seen.judgement.results if result.state in GONE} if seen else set[str]()
        return tuple(id_ for id_ in (self.record.targets if self.record else ()) if id_ not in gone)

    def note(self, **fields: Any) -> None:
        """Change its record and keep it."""
        assert self.record
        self.record = replace(self.record, **fields)
        state.save(self.record)

    def result(self) -> HostResult:
        """Return what is to be reported."""
        record = self.record
        after = state.evidence_file(self.name, "after")
        return HostResult(
            host=self.name,
            plan=self.plan,
            refused=self.refused,
            failure=self.failure,
            before=self.before.judgement if self.before else None,
            after=self.after.judgement if self.after else None,
            targets=record.targets if record else (),
            next_boot=self.next_boot,
            rebooting=self.rebooting,
            evidence=(Path(record.before), *((after,) if self.after else ())) if record else (),
        )
