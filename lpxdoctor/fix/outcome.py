"""What became of a host: what was to be gone and what is found now in; removed, left or waiting, and a status, out."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from lpxdoctor.check import Severity
from lpxdoctor.evaluate import Judgement, Result, State, Verdict
from lpxdoctor.fix.plan import Plan

GONE = (State.PASS, State.NOT_APPLICABLE)


@dataclass(frozen=True, kw_only=True)
class HostResult:
    """One host's row: what is planned, and where it ran, what it was before and is now."""

    host: str
    plan: Plan | None = None  # None where the host gave no evidence
    refused: str = ""  # why nothing was done
    failure: str = ""  # why it did not come to its end, or what a playbook did not remove
    before: Judgement | None = None
    after: Judgement | None = None  # None where nothing ran, or where it did not answer any more
    targets: tuple[str, ...] = ()  # what was to be gone
    next_boot: tuple[str, ...] = ()  # of them, those of which something counts from the next boot on
    rebooting: bool = False  # whether it starts anew now, and a unit goes on there
    evidence: tuple[Path, ...] = ()  # of before and after

    @property
    def removed(self) -> tuple[str, ...]:
        """The targets that are gone."""
        states = _states(self.after)
        return tuple(id_ for id_ in self.targets if states.get(id_) in GONE)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The targets that are still there, and of which something counts from the next boot on."""
        if self.after is None:
            return self.next_boot if self.rebooting else ()
        return tuple(id_ for id_ in self.next_boot if id_ not in self.removed)

    @property
    def left(self) -> tuple[str, ...]:
        """The targets that are still there though their playbook ran, or that cannot be judged now."""
        gone = (*self.removed, *self.waiting)
        return tuple(id_ for id_ in self.targets if id_ not in gone) if self.after else ()

    @property
    def appeared(self) -> tuple[Result, ...]:
        """What is found now and was not found before: what had waited for a cause that is gone, or is new."""
        states = _states(self.before)
        found = self.after.found if self.after else ()
        return tuple(
            result
            for result in found
            if states.get(result.check.id) is not State.FOUND and result.severity is not Severity.INFO
        )


def status(result: HostResult, ids: Collection[str]) -> int:
    """Return the exit status: 0 nothing left, 1 warnings or a reboot left, 2 a failure, 3 not judged enough."""
    if result.refused or result.failure or result.left:
        return 2
    if result.waiting:
        return 1
    now = result.after or result.before
    return 2 if now is None else state_of(now, ids)


def state_of(judgement: Judgement, ids: Collection[str]) -> int:
    """Return the status of a judgement as far as these ids go; of all of it where none is named."""
    if not ids:
        return judgement.verdict.value
    chosen = [result for result in judgement.results if result.check.id in ids]
    if any(result.failed or result.state is State.BLOCKED for result in chosen):
        return Verdict.FAILED.value
    if any(result.state is State.FOUND for result in chosen):
        return Verdict.WARNING.value
    judged = all(result.state in (*GONE, State.WAIVED) for result in chosen)
    return Verdict.HEALTHY.value if judged else Verdict.UNKNOWN.value


def _states(judgement: Judgement | None) -> dict[str, State]:
    return {result.check.id: result.state for result in judgement.results} if judgement else {}
