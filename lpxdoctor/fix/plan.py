"""What was found on a host and what the playbooks can do in; the smallest ordered plan against the root causes out."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from lpxdoctor.check import Check, Severity
from lpxdoctor.evaluate import Judgement, Result, State, Verdict
from lpxdoctor.fix.catalogue import INTERRUPTS, REBOOT, Catalogue, Task
from lpxdoctor.fix.work import GpuWork


@dataclass(frozen=True)
class Step:
    """One run of a playbook by tags: the ids that it puts right, what it may change, and what that costs."""

    playbook: str
    ids: tuple[str, ...]  # root causes; they are the tags too
    changes: tuple[str, ...]  # names of tasks
    interrupts: bool  # whether it stops GPU work
    next_boot: tuple[str, ...]  # of ids, those of which something counts from the next boot on only


@dataclass(frozen=True)
class ByHand:
    """A finding that no playbook puts right: what to do, commands or the check's own words."""

    id: str
    title: str
    do: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What is to be done on a host, in this order; a reboot comes once, behind steps and before later."""

    host: str
    steps: tuple[Step, ...]
    later: tuple[Step, ...]  # they need the reboot: what they put right follows from what counts from it on
    by_hand: tuple[ByHand, ...]
    waiting: tuple[tuple[str, str], ...]  # (id that was asked for, the root cause that it waits for)
    work: GpuWork
    unjudged: str = ""  # what of it could not be judged, where that is too much to call the host right

    @property
    def reboots(self) -> bool:
        """Whether something in it counts from the next boot on only."""
        return any(step.next_boot for step in (*self.steps, *self.later))

    @property
    def interrupts(self) -> bool:
        """Whether it stops GPU work, a reboot included."""
        return self.reboots or any(step.interrupts for step in (*self.steps, *self.later))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that it puts right."""
        return tuple(id_ for step in (*self.steps, *self.later) for id_ in step.ids)

    def put_off(self) -> "Plan":
        """Return the plan with every step behind the reboot: what was run already only waits for that."""
        return replace(self, steps=(), later=(*self.steps, *self.later))

    def finishing(self, playbook: str, ids: Collection[str], catalogue: Catalogue) -> "Plan":
        """Return the plan with a playbook that was cut off run to its end, also against ids that are not found now."""
        there = next((step.ids for step in self.steps if step.playbook == playbook), ())
        step = _step(playbook, tuple(dict.fromkeys((*ids, *there))), catalogue[playbook])
        others = [one for one in self.steps if one.playbook != playbook]
        order = list(catalogue)
        return replace(self, steps=tuple(sorted((*others, step), key=lambda one: order.index(one.playbook))))

    @property
    def shape(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The steps alone, without what is by hand: hosts with equal ones are reported together."""
        return self.steps, self.later


def plan(judgement: Judgement, catalogue: Catalogue, ids: Collection[str], work: GpuWork) -> Plan:
    """Return the plan of a host.

    Args:
        judgement: what was found.
        catalogue: the tasks of each playbook.
        ids: what to put right; empty for everything that is worse than a note.
        work: what runs on the GPUs.
    """
    roots = _roots(judgement, ids)
    able = {result.check.id for result in roots if _able(result, catalogue)}
    steps = tuple(_steps([result for result in roots if result.check.id in able], catalogue))
    now = [step for step in steps if not _follows(step, steps, judgement)]
    return Plan(
        host=judgement.host,
        steps=tuple(now),
        later=tuple(step for step in steps if step not in now),
        by_hand=tuple(_by_hand(result) for result in roots if result.check.id not in able),
        waiting=tuple(
            (result.check.id, result.blocked_by)
            for result in judgement.of(State.BLOCKED)
            if result.check.id in ids and result.blocked_by
        ),
        work=work,
        unjudged=_unjudged(judgement, ids),
    )


def _unjudged(judgement: Judgement, ids: Collection[str]) -> str:
    unknown = judgement.of(State.UNKNOWN, State.CRASHED)
    if ids:
        return ", ".join(f"{result.check.id} ({result.reason})" for result in unknown if result.check.id in ids)
    ran, of = judgement.coverage
    return f"{of - ran} of {of} checks" if judgement.verdict is Verdict.UNKNOWN else ""


def _roots(judgement: Judgement, ids: Collection[str]) -> list[Result]:
    """Return the findings to put right: those asked for, and for one that is blocked the cause that it waits for."""
    if not ids:
        return [result for result in judgement.found if result.severity is not Severity.INFO]
    wanted = {*ids, *(result.blocked_by for result in judgement.of(State.BLOCKED) if result.check.id in ids)}
    return [result for result in judgement.found if result.check.id in wanted]


def _able(result: Result, catalogue: Catalogue) -> bool:
    """Tell whether the playbook that a check names has tasks for it."""
    check = result.check
    return any(check.id in task.tags for task in catalogue.get(check.fix, ()))


def _steps(roots: Sequence[Result], catalogue: Catalogue) -> Iterator[Step]:
    for playbook, tasks in catalogue.items():
        ids = tuple(result.check.id for result in roots if result.check.fix == playbook)
        if ids:
            yield _step(playbook, ids, tasks)


def _step(playbook: str, ids: tuple[str, ...], tasks: Sequence[Task]) -> Step:
    chosen = [task for task in tasks if task.tags.intersection(ids)]
    return Step(
        playbook=playbook,
        ids=ids,
        changes=tuple(dict.fromkeys(task.name for task in chosen if task.changes)),
        interrupts=any(INTERRUPTS in task.tags for task in chosen),
        next_boot=tuple(id_ for id_ in ids if _reboots(id_, chosen)),
    )


def _reboots(id_: str, tasks: Sequence[Task]) -> bool:
    return any(REBOOT in task.tags for task in tasks if id_ in task.tags and task.changes)


def _follows(step: Step, steps: Sequence[Step], judgement: Judgement) -> bool:
    """Tell whether what a step puts right follows from what another one does only with the next boot.

    A failure blocks what follows from it, so this is about warnings that do.
    """
    by_id = {result.check.id: result.check for result in judgement.results}
    early = {id_ for other in steps if other is not step for id_ in other.next_boot}
    return any(early.intersection(_before(by_id[id_], by_id)) for id_ in step.ids)


def _before(check: Check[...], by_id: dict[str, Check[...]]) -> set[str]:
    """Return the ids of all that a check follows from."""
    found: set[str] = set()
    queue = [check]
    while queue:
        new = [id_ for id_ in queue.pop().after if id_ not in found and id_ in by_id]
        found.update(new)
        queue += [by_id[id_] for id_ in new]
    return found


def _by_hand(result: Result) -> ByHand:
    commands = tuple(dict.fromkeys(command for finding in result.findings for command in finding.do))
    return ByHand(result.check.id, result.check.title, commands or (result.check.cure,))
