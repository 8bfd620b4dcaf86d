"""Run the steps of plans: hosts with their plans in; each of them with what was run on it, or why it failed, out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpxdoctor import galaxy, inventory, playbook
from lpxdoctor.errors import SetupError
from lpxdoctor.fix import failures
from lpxdoctor.fix.catalogue import Catalogue
from lpxdoctor.fix.look import Looker
from lpxdoctor.fix.patient import Patient
from lpxdoctor.fix.plan import Step
from lpxdoctor.fix.state import Wishes
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import TaskEvent

REBOOT_LIMIT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a run works with."""

    wishes: Wishes
    source: Source
    looker: Looker
    catalogue: Catalogue
    variables: Mapping[str, Any]  # of the roles, for every host
    on_event: Callable[[TaskEvent], None]


def steps(job: Job, work: Sequence[tuple[Patient, Sequence[Step]]]) -> None:
    """Run each host's steps, playbook by playbook, and note it; hosts with the same tags share a run of Ansible."""
    for name in job.catalogue:
        groups: dict[tuple[str, ...], list[Patient]] = {}
        for patient, own in work:
            for step in own:
                if step.playbook == name and not patient.failure:
                    groups.setdefault(step.ids, []).append(patient)
        for ids, group in groups.items():
            _step(job, name, ids, group)


def reboot(job: Job, group: Sequence[Patient]) -> None:
    """Start hosts anew and wait until they are back."""
    variables = {**_wishes(job), "reboot_allowed": True}
    _play(job, "reboot", group, variables, (), REBOOT_LIMIT_S)
    for patient in group:
        patient.rebooted = not patient.failure


def _wishes(job: Job) -> dict[str, Any]:
    told = {"gpu_work": job.wishes.gpu_work, **({"drain_limit_s": job.wishes.drain_s} if job.wishes.drain_s else {})}
    return {**told, **job.variables}


def _step(job: Job, name: str, ids: tuple[str, ...], group: Sequence[Patient]) -> None:
    for patient in group:
        patient.note(running=name)
    _play(job, name, group, _wishes(job), ids, None)
    for patient in group:
        if not patient.failure and patient.record:
            patient.note(running="", applied=(*patient.record.applied, *ids))


def _play(
    job: Job,
    name: str,
    group: Sequence[Patient],
    variables: Mapping[str, Any],
    tags: Sequence[str],
    limit_s: float | None,
) -> None:
    """Run a playbook on some hosts, and keep of each why it failed."""
    try:
        outcome = playbook.run(
            name,
            [job.source, inventory.for_hosts({patient.name: variables for patient in group})],
            collections=galaxy.ensure(),
            on_event=job.on_event,
            tags=tags,
            hosts=[patient.name for patient in group],
            limit_s=limit_s,
        )
    except SetupError as error:
        for patient in group:
            patient.failure = f"the playbook {name} could not run: {error}"
        return
    for patient in group:
        if patient.name in outcome.failed:
            log = f"\nAll that Ansible said: {outcome.log}" if outcome.log else ""
            said = failures.explain(outcome.failed[patient.name], patient.name)
            patient.failure = f"playbook {name}: {said}{log}"
        elif patient.name not in outcome.changed:
            patient.failure = f"the playbook {name} ended before it came to this host.\n{failures.AGAIN}"
