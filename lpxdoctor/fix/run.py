"""Plan, run and verify: wishes and hosts in; a result for each host out, and a record of what is still to do."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from lpxdoctor.errors import UsageError
from lpxdoctor.evidence import from_json, to_json
from lpxdoctor.fix import play, state, unit
from lpxdoctor.fix.look import Seen
from lpxdoctor.fix.outcome import HostResult
from lpxdoctor.fix.patient import Patient
from lpxdoctor.fix.plan import Plan, plan
from lpxdoctor.fix.play import Job
from lpxdoctor.fix.state import Record, Wishes
from lpxdoctor.fix.work import gpu_work
from lpxdoctor.fleet import FleetHost, NoAnswer

Prepare = Callable[[Job, Patient], None]


def planned(job: Job, hosts: Sequence[FleetHost]) -> tuple[HostResult, ...]:
    """Look at hosts and plan; change nothing."""
    patients = [Patient(host=host) for host in hosts]
    _look(job, patients)
    return tuple(patient.result() for patient in patients)


def carried_out(job: Job, hosts: Sequence[FleetHost]) -> tuple[HostResult, ...]:
    """Look at hosts, run the plan of each, and look again; no host's failure keeps another from its end.

    A host that another run works on, that has GPU work which nobody said to interrupt, or where the asker is not root,
    is refused. What waits for a reboot is kept in a record. Where a reboot was allowed it is done and waited for; but
    for this machine, whose result is `rebooting`: the caller says what there is to say and calls unit.reboot().

    Raises:
        SetupError: the state directory cannot be written.
        Canceled: after Ctrl-C or SIGTERM; the records say how far each host is.
    """
    return _treated(job, hosts, _begin)


def resumed(job: Job, hosts: Sequence[FleetHost]) -> tuple[HostResult, ...]:
    """Go on where a reboot or an interruption ended the former run of these hosts; each must have a record.

    Raises as carried_out does, and UsageError where a record cannot be read.
    """
    return _treated(job, hosts, _recall)


def _treated(job: Job, hosts: Sequence[FleetHost], prepare: Prepare) -> tuple[HostResult, ...]:
    with ExitStack() as locks:
        patients = [Patient(host=host, refused=locks.enter_context(state.locked(host.name))) for host in hosts]
        _look(job, [patient for patient in patients if not patient.refused])
        for patient in patients:
            if patient.before and not patient.refused:
                prepare(job, patient)
        running = [patient for patient in patients if patient.runs]
        play.steps(job, [(patient, patient.plan.steps) for patient in running if patient.plan])
        _verify(job, running)
        _settle(job, running)
        return tuple(patient.result() for patient in patients)


def _look(job: Job, patients: Sequence[Patient]) -> None:
    rows = job.looker.look([patient.host for patient in patients]) if patients else {}
    for patient in patients:
        row = rows[patient.name]
        if isinstance(row, NoAnswer):
            patient.failure = f"{row.reason}.\n{row.do}"
        else:
            patient.before = row
            patient.plan = plan(row.judgement, job.catalogue, job.wishes.ids, gpu_work(row.evidence))


def _refusal(patient: Patient, wishes: Wishes) -> str:
    """Return why nothing may be changed on a host, "" where it may."""
    assert patient.before
    assert patient.plan
    if patient.before.evidence.uid != 0:
        how = "sudo lpxdoctor fix ..." if patient.local else "set ansible_user=root, or ansible_become=true"
        return f"changes need root there, and it was asked as another user.\nType: {how}"
    running = patient.plan.work.running
    if running and wishes.gpu_work == "refuse":
        harmless = "" if patient.plan.interrupts else "\nNothing of this plan stops them: --force does no harm here."
        return (
            f"its GPUs are at work: {', '.join(running)}. Nothing was changed.\n"
            f"To stop them in order first: --drain 120. To go on although they run: --force.{harmless}"
        )
    return ""


def _begin(job: Job, patient: Patient) -> None:
    """Record what is to be done before any of it is; the new plan takes the place of a former run's record."""
    assert patient.before
    assert patient.plan
    try:
        patient.plan = _finishing(job, state.load(patient.name), patient.plan)
    except UsageError as error:
        patient.refused = str(error)
        return
    if not patient.plan.ids:
        state.remove(patient.name)
        return
    patient.refused = _refusal(patient, job.wishes)
    if patient.refused:
        return
    kept = state.keep_evidence(patient.name, "before", to_json(patient.before.evidence))
    patient.record = Record(
        host=patient.name,
        wishes=job.wishes,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        stage="running",
        targets=patient.plan.ids,
        before=str(kept),
        booted=patient.before.booted,
    )
    state.save(patient.record)


def _finishing(job: Job, former: Record | None, now: Plan) -> Plan:
    """Return the plan with what was cut off in it: its finding may be gone before the last task that it needs."""
    tasks = job.catalogue.get(former.running, ()) if former else ()
    ids = [id_ for id_ in former.targets if any(id_ in task.tags for task in tasks)] if former else []
    named = not job.wishes.ids or bool(set(ids) & set(job.wishes.ids))
    return now.finishing(former.running, ids, job.catalogue) if former and ids and named else now


def _recall(job: Job, patient: Patient) -> None:
    """Take up a record: how the host was before, and a plan of what is left to do now."""
    record, now = state.load(patient.name), patient.before
    assert record
    assert now
    before = from_json(Path(record.before).read_text(encoding="utf-8"))
    patient.record, patient.after, patient.before = record, now, Seen(before, job.looker.judge(before))
    patient.rebooted = record.stage == "reboot" and now.booted != record.booted
    # What a playbook was run against, and is there after the boot, is not to be tried again but to be told.
    tried = record.applied if record.stage == "reboot" else ()
    left = [id_ for id_ in patient.unsettled if id_ not in tried]
    work = gpu_work(now.evidence)
    patient.plan = plan(now.judgement, job.catalogue, left, work) if left else Plan(patient.name, (), (), (), (), work)
    patient.plan = _finishing(job, record, patient.plan)
    if record.stage == "reboot" and not patient.rebooted:
        patient.plan = plan(now.judgement, job.catalogue, patient.unsettled, work).put_off()
    patient.refused = _refusal(patient, job.wishes) if patient.plan.steps else ""


def _verify(job: Job, patients: Sequence[Patient]) -> None:
    """Look again at the hosts that something was run on, whether it came to its end or not."""
    rows = job.looker.look([patient.host for patient in patients]) if patients else {}
    for patient in patients:
        row = rows[patient.name]
        if isinstance(row, NoAnswer):
            patient.after = None
            patient.failure = patient.failure or f"it does not answer any more: {row.reason}.\n{row.do}"
        else:
            patient.after = row
            state.keep_evidence(patient.name, "after", to_json(row.evidence))


def _settle(job: Job, patients: Sequence[Patient]) -> None:
    """Reboot what waits for it, where that is allowed, and go on; drop the records of hosts that are done."""
    well = [patient for patient in patients if not patient.failure]
    waiting = [patient for patient in well if set(patient.unsettled) & set(patient.next_boot)]
    for patient in waiting:
        assert patient.after
        patient.note(stage="reboot", booted=patient.after.booted)
    if job.wishes.reboot:
        _reboot(job, waiting)
    _go_on(job, [patient for patient in well if patient not in waiting])
    for patient in well:
        if not patient.failure and (patient not in waiting or patient.rebooted):
            state.remove(patient.name)


def _reboot(job: Job, waiting: Sequence[Patient]) -> None:
    remote = [patient for patient in waiting if not patient.local]
    if remote:
        play.reboot(job, remote)
        back = [patient for patient in remote if patient.rebooted]
        _verify(job, back)
        _go_on(job, [patient for patient in back if not patient.failure])
    for patient in waiting:
        if patient.local:
            unit.install()
            patient.rebooting = True


def _go_on(job: Job, patients: Sequence[Patient]) -> None:
    """Run what waited for a reboot that is over, or that turned out not to be needed."""
    late = [(patient, patient.plan.later) for patient in patients if patient.plan and patient.plan.later]
    play.steps(job, late)
    _verify(job, [patient for patient, _ in late])
