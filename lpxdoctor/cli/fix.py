"""lpxdoctor fix: ids and hosts in; a plan, or what became of it with before and after, out."""

import datetime
import io
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console

from lpxdoctor import catalog, fleet, inventory, policy
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import read_evidence
from lpxdoctor.cli._rollout import progress
from lpxdoctor.errors import UsageError
from lpxdoctor.evaluate import evaluate
from lpxdoctor.files import is_there
from lpxdoctor.fix import catalogue, run, state, unit, variables
from lpxdoctor.fix.look import Looker
from lpxdoctor.fix.outcome import HostResult
from lpxdoctor.fix.plan import plan as plan_of
from lpxdoctor.fix.play import Job
from lpxdoctor.fix.state import Record, Wishes
from lpxdoctor.fix.work import gpu_work
from lpxdoctor.fleet import FleetHost
from lpxdoctor.report import fix, fix_text
from lpxdoctor.report.encoding import pretty


@click.command(
    "fix", epilog=_options.examples("sudo lpxdoctor fix", "sudo lpxdoctor fix boot.nouveau-not-blocked --yes --reboot")
)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--plan", is_flag=True, help="Only say what would be done; what happens without --yes too.")
@click.option("--yes", is_flag=True, help="Do it, then check again.")
@_options.inventory()
@click.option("--from", "source", metavar="FILE", help=f"Plan for {_options.EVIDENCE}; changes nothing.")
@click.option("--reboot", is_flag=True, help="Reboot where something counts from the next boot on only.")
@click.option("--resume", is_flag=True, help="Go on after a reboot or an interruption, and verify.")
@click.option("--drain", "drain_s", type=click.IntRange(1), metavar="SECONDS", help="Stop GPU work in order first.")
@click.option("--force", is_flag=True, help="Go on although GPU work runs.")
@_options.variables()
@_options.output_format()
@_options.container_test()
@_options.policy()
def command(
    *,
    ids: tuple[str, ...],
    plan: bool,
    yes: bool,
    hosts: str | None,
    source: str | None,
    reboot: bool,
    resume: bool,
    drain_s: int | None,
    force: bool,
    variables_file: str | None,
    form: str,
    no_container_test: bool,
    policy_file: str | None,
) -> int:
    """Plan what puts this host right, or every host of an inventory; with --yes do it and check again.

    The plan is the smallest sequence of playbooks against the root causes. With IDs, only these are put right.

    Exit status, of several hosts that of the worst: 0 nothing is left, 1 warnings or a reboot are, 2 a failure is, or a
    playbook did not remove its finding, 3 too little could be judged, 64 wrong use, 130 interrupted.
    """
    _refuse_contradictions(
        plan=plan, yes=yes, source=source, hosts=hosts, resume=resume, ids=ids, drain_s=drain_s, force=force
    )
    wishes = Wishes(
        source=_kept(hosts) if hosts else "",
        ids=ids,
        gpu_work="force" if force else "drain" if drain_s else "refuse",
        drain_s=drain_s or 0,
        reboot=reboot,
        variables=str(Path(variables_file).resolve()) if variables_file else "",
        policy=str(Path(policy_file).resolve()) if policy_file else "",
        container_test=not no_container_test,
    )
    if resume:
        return _resume(wishes, form)
    if source:
        return _shown(_recorded(source, wishes), wishes, form, ran=False, recorded=True)
    if yes:
        return _shown(_carried_out(wishes), wishes, form, ran=True)
    with _job(wishes) as (job, named):
        results = run.planned(job, named)
    return _shown(results, wishes, form, ran=False)


def _refuse_contradictions(
    *,
    plan: bool,
    yes: bool,
    source: str | None,
    hosts: str | None,
    resume: bool,
    ids: Sequence[str],
    drain_s: int | None,
    force: bool,
) -> None:
    pairs = (
        (plan and yes, "--plan and --yes exclude each other: the first changes nothing."),
        (
            bool(source) and yes,
            "--from is a record: nothing can be changed in it. Leave it out to fix the host.",
        ),
        (bool(source) and bool(hosts), "--from and -i exclude each other: a record is of one host, and says which."),
        (bool(source) and resume, "--from and --resume exclude each other: a record does not go on."),
        (resume and bool(ids), "--resume goes on with what was planned: it takes no IDs."),
        (
            bool(drain_s) and force,
            "--drain and --force exclude each other: GPU work ends in order, or is cut off.",
        ),
    )
    for wrong, why in pairs:
        if wrong:
            raise UsageError(why)


def _kept(hosts: str) -> str:
    """Return the value of -i so that it holds from another directory too."""
    return str(Path(hosts).resolve()) if is_there(hosts) else hosts


def _looker(wishes: Wishes) -> Looker:
    checks = catalog.chosen(catalog.load(), wishes.ids)
    site = policy.load(Path(wishes.policy) if wishes.policy else None)
    today = datetime.date.today()  # noqa: DTZ011 - a waiver ends on a local day
    return Looker(
        checks=checks,
        judge=lambda evidence: evaluate(checks, evidence, site, today),
        container_test=wishes.container_test,
    )


@contextmanager
def _job(wishes: Wishes) -> Generator[tuple[Job, tuple[FleetHost, ...]]]:
    """Yield what a run works with and its hosts, with live progress meanwhile."""
    source = inventory.parse(wishes.source) if wishes.source else inventory.local()
    read, looker, named = variables.read(wishes.variables), _looker(wishes), fleet.hosts(source)
    with progress("fix", "looks at the hosts") as on_event:
        job = Job(
            wishes=wishes,
            source=source,
            looker=looker,
            catalogue=catalogue.load(),
            variables=read,
            on_event=on_event,
        )
        yield job, named


def _recorded(file: str, wishes: Wishes) -> tuple[HostResult, ...]:
    """Return the plan for recorded evidence."""
    evidence = read_evidence(file)
    judgement = _looker(wishes).judge(evidence)
    planned = plan_of(judgement, catalogue.load(), wishes.ids, gpu_work(evidence))
    return (HostResult(host=judgement.host, plan=planned, before=judgement),)


def _carried_out(wishes: Wishes) -> tuple[HostResult, ...]:
    with _job(wishes) as (job, named), _told_when_interrupted([host.name for host in named]):
        return run.carried_out(job, named)


def _resume(asked: Wishes, form: str) -> int:
    """Go on with every host that has a record, or that -i names; print what a run after the boot kept."""
    records = [record for host in state.hosts() if (record := state.load(host))]
    if asked.source:
        records = [record for record in records if record.wishes.source == asked.source]
    if not records:
        raise UsageError("Nothing waits to be resumed here.\nlpxdoctor fix looks at the host and plans anew.")
    finished = [record for record in records if record.stage == "finished"]
    documents = [msgspec.json.decode(record.document, type=fix.Document) for record in finished]
    if form == "text":
        print("".join(record.said for record in finished), end="")
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.stage != "finished":
            groups.setdefault(record.wishes.source, []).append(record)
    results: list[HostResult] = []
    try:
        for group in groups.values():
            wishes, ended = _resumed(asked, group)
            results += ended
            documents.append(fix.document(ended, wishes.ids, ran=True))
            if form == "text":
                fix_text.render_run(ended, Console(), wishes.ids, _typed(wishes))
        if form == "json":
            print_document(pretty(fix.merged(documents)))
        for record in finished:
            state.remove(record.host)
    finally:
        _reboot_where_announced(results)
    return fix.merged(documents).status


def _resumed(asked: Wishes, group: Sequence[Record]) -> tuple[Wishes, tuple[HostResult, ...]]:
    """Go on with hosts of one inventory; what is said now counts before what was said then."""
    then = group[0].wishes
    told = asked.gpu_work != "refuse"
    wishes = msgspec.structs.replace(
        then,
        gpu_work=asked.gpu_work if told else then.gpu_work,
        drain_s=asked.drain_s if told else then.drain_s,
        reboot=asked.reboot,
        variables=asked.variables or then.variables,
        policy=asked.policy or then.policy,
    )
    names = [record.host for record in group]
    with _job(wishes) as (job, named), _told_when_interrupted(names):
        gone = set(names) - {host.name for host in named}
        if gone:
            raise UsageError(
                f"{', '.join(sorted(gone))} waits to be resumed and is not in {then.source} any more.\n"
                f"Put it back, or forget it: rm {state.record_file(min(gone))}"
            )
        results = run.resumed(job, [host for host in named if host.name in names])
    if unit.UNATTENDED in os.environ:
        _keep(results, wishes, {record.host: record for record in group})
    return wishes, results


def _keep(results: Sequence[HostResult], wishes: Wishes, records: Mapping[str, Record]) -> None:
    """Keep a report that nobody reads now."""
    for result in results:
        text = io.StringIO()
        fix_text.render_run([result], Console(file=text, width=100), wishes.ids, _typed(wishes))
        document = pretty(fix.document([result], wishes.ids, ran=True))
        record = records[result.host]
        state.save(msgspec.structs.replace(record, stage="finished", said=text.getvalue(), document=document))


def _shown(results: Sequence[HostResult], wishes: Wishes, form: str, *, ran: bool, recorded: bool = False) -> int:
    """Print results, begin the reboot that they announce, and return the exit status."""
    document = fix.document(results, wishes.ids, ran=ran)
    if form == "json":
        print_document(pretty(document))
    elif ran:
        fix_text.render_run(results, Console(), wishes.ids, _typed(wishes))
    else:
        fix_text.render_plan(results, Console(), _typed(wishes), recorded=recorded)
    _reboot_where_announced(results)
    return document.status


def _reboot_where_announced(results: Sequence[HostResult]) -> None:
    if any(result.rebooting for result in results):
        sys.stdout.flush()
        unit.reboot()


def _typed(wishes: Wishes) -> tuple[str, ...]:
    """Return the command as it was typed, less what runs it."""
    pairs = (("-i", wishes.source), ("--vars", wishes.variables), ("--policy", wishes.policy))
    options = tuple(word for name, value in pairs if value for word in (name, value))
    sudo = () if wishes.source or os.geteuid() == 0 else ("sudo",)
    test = () if wishes.container_test else ("--no-container-test",)
    return (*sudo, "lpxdoctor", "fix", *wishes.ids, *options, *test)


@contextmanager
def _told_when_interrupted(names: Sequence[str]) -> Generator[None]:
    """After Ctrl-C or SIGTERM, say how far each host is and what finishes it."""
    try:
        yield
    except KeyboardInterrupt:
        records = {name: state.load(name) for name in names}
        if not any(records.values()):
            print("Nothing was changed.", file=sys.stderr)
        for name, record in records.items():
            if record and record.stage == "running":
                done = f"; done: {', '.join(record.applied)}" if record.applied else ""
                in_it = f"in the playbook {record.running}" if record.running else "between playbooks"
                print(f"{name}: interrupted {in_it}{done}. What was done stays.", file=sys.stderr)
                print("To finish it: lpxdoctor fix --resume", file=sys.stderr)
        raise
