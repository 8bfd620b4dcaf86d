"""Roll out, plan and remove engines on hosts: a request and an inventory in, results and records out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor import deployments, galaxy, inventory, logs, playbook
from lpxdoctor.deploy import failures
from lpxdoctor.deploy.reach import connection, ssh
from lpxdoctor.deploy.request import Request, asked, role_variables
from lpxdoctor.deploy.variant import Choice, GpuHost, catalogue, choose
from lpxdoctor.deployments import Deployment
from lpxdoctor.errors import DeployError
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import Canceled, Outcome, State, TaskEvent

# Besides the engine's own limit: an image of 12 GB may come through a slow line.
PULL_LIMIT_S = 3600.0
LOOK_LIMIT_S = 180.0
# The tasks whose results are read, by the names that the playbooks give them.
LOOK_TASK = "Look at the host"
REACH_TASK = "Say how the host is reached"
WAIT_TASK = "Wait until the engine answers"
REPORT_TASK = "Say how to reach the engine"
KEY_TASK = "Keep the engine's key and secrets"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A host as found."""

    name: str
    gpu: GpuHost
    connection: Mapping[str, str | int | bool]  # as Deployment.connection


@dataclass(frozen=True, kw_only=True)
class Change:
    """A task that changed, or would change, something."""

    task: str
    diff: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class HostResult:
    """What a run did, or would do, on one host."""

    host: str
    choice: Choice
    changes: tuple[Change, ...]
    deployment: Deployment | None  # None for a plan
    seconds: float | None  # that the engine took to start; None where it ran already, and for a plan
    exposed: bool = False  # whether more than its host can reach the engine


@dataclass(kw_only=True)
class _Seen:
    """What the events of a run said, by host."""

    changes: dict[str, list[Change]] = field(default_factory=dict[str, list[Change]])
    results: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict[tuple[str, str], Mapping[str, Any]])

    def note(self, event: TaskEvent) -> None:
        if event.state is State.CHANGED:
            self.changes.setdefault(event.host, []).append(Change(task=event.task, diff=_diffs(event.result)))
        if event.state in {State.OK, State.CHANGED}:
            self.results[event.host, event.task] = event.result


Handler = Callable[[TaskEvent], None]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a run did on its hosts, of which some may have failed."""

    results: tuple[HostResult, ...]  # of those where all went well
    outcome: Outcome
    untried: tuple[str, ...]  # not come to, because another host failed


def look(source: Source, collections: Path, on_event: Handler, hosts: Sequence[str] = ()) -> tuple[Target, ...]:
    """Return what the hosts are and offer; DeployError when one of them does not answer or has no Docker."""
    seen = _Seen()
    outcome = _run("target", [source], collections, (seen.note, on_event), hosts=hosts, limit_s=LOOK_LIMIT_S)
    if outcome.failed:
        raise _failed(outcome, "Nothing was changed.")
    return tuple(
        Target(
            name=host,
            gpu=_gpu_host(seen.results[host, LOOK_TASK]),
            connection=connection(seen.results[host, REACH_TASK]["msg"]),
        )
        for host in outcome.changed
    )


def deploy(request: Request, source: Source, on_event: Handler, *, plan: bool = False) -> tuple[HostResult, ...]:
    """Bring the engine to every host of the inventory and record it; with plan, only say what would change.

    Raises:
        DeployError: a host refused, or its engine did not become healthy; those of other hosts are recorded.
        SetupError: Ansible could not run here.
        Canceled: on Ctrl-C; what was half done has been put back.
    """
    done = attempt(request, source, on_event, plan=plan)
    if done.outcome.failed:
        raise _failed(done.outcome, _remark(done.untried))
    return done.results


def attempt(
    request: Request, source: Source, on_event: Handler, *, plan: bool = False, hosts: Sequence[str] = ()
) -> Attempt:
    """Do as deploy, and return also what failed once the hosts had been looked at.

    With hosts only these of the inventory are taken, and their records are NAME@HOST even where it is one.
    """
    collections = galaxy.ensure()
    targets = look(source, collections, on_event, hosts)
    choices = {target.name: _choose(target, request) for target in targets}
    variables = {host: role_variables(request, choice) for host, choice in choices.items()}
    seen = _Seen()
    try:
        outcome = _run(
            "engine",
            [source, inventory.for_hosts(variables)],
            collections,
            (seen.note, on_event),
            check=plan,
            hosts=hosts,
            limit_s=PULL_LIMIT_S + request.ready_limit_s,
        )
    except Canceled:
        if not plan:
            _settle(source, variables, collections, hosts, seen)
        raise
    well = [target for target in targets if target.name in outcome.changed]
    alone = len(targets) == 1 and not hosts
    results = tuple(_result(target, choices[target.name], seen, request, alone=alone) for target in well)
    for result in results:
        if result.deployment is not None:
            deployments.save(result.deployment)
    return Attempt(results=results, outcome=outcome, untried=_untried(outcome, targets))


def undeploy(name: str, source: Source, on_event: Handler) -> Mapping[str, int]:
    """Remove container, key and record from every host, keeping model and image; return host -> changed tasks."""
    collections = galaxy.ensure()
    targets = look(source, collections, on_event)
    gone = {target.name: {"engine_state": "absent", "engine_name": name} for target in targets}
    sources = [source, inventory.for_hosts(gone)]
    outcome = _run("engine", sources, collections, (on_event,), limit_s=LOOK_LIMIT_S)
    for host in outcome.changed:
        for record in _records_of(name, host):
            deployments.remove(record)
    if outcome.failed:
        raise _failed(outcome, _remark(_untried(outcome, targets)))
    return outcome.changed


def recorded(name: str) -> Source:
    """Return the inventory of all hosts that a name is recorded on; UsageError when there is none."""
    known = [one for one in deployments.names() if one == name or one.startswith(f"{name}@")]
    records = [deployments.load(one) for one in known or [name]]
    return inventory.for_hosts({record.host: record.connection for record in records})


def _records_of(name: str, host: str) -> list[str]:
    """Return the records of an engine on a host, which is alone in its run or was not."""
    candidates = [one for one in (name, f"{name}@{host}") if one in deployments.names()]
    return [one for one in candidates if deployments.load(one).host == host]


def _run(
    playbook_name: str,
    sources: Sequence[Source],
    collections: Path,
    handlers: Sequence[Handler],
    *,
    limit_s: float,
    check: bool = False,
    hosts: Sequence[str] = (),
) -> Outcome:
    def on_event(event: TaskEvent) -> None:
        for handler in handlers:
            handler(event)

    return playbook.run(
        playbook_name, sources, collections=collections, on_event=on_event, check=check, hosts=hosts, limit_s=limit_s
    )


def _settle(
    source: Source,
    variables: Mapping[str, Mapping[str, Any]],
    collections: Path,
    hosts: Sequence[str],
    seen: _Seen,
) -> None:
    """Put back what an interrupted run left half done."""
    settled = {
        host: {
            **values,
            "engine_state": "settled",
            "engine_new_key": seen.results.get((host, KEY_TASK), {}).get("new_key", False),
        }
        for host, values in variables.items()
    }
    _run("engine", [source, inventory.for_hosts(settled)], collections, (), hosts=hosts, limit_s=LOOK_LIMIT_S)


def _choose(target: Target, request: Request) -> Choice:
    try:
        return choose(target.gpu, catalogue(), request.variant, request.image)
    except DeployError as error:
        raise DeployError(f"{target.name}: {error}") from None


def _gpu_host(looked: Mapping[str, Any]) -> GpuHost:
    gpu = looked["gpu"]
    return GpuHost(
        driver=gpu["driver"],
        cards=tuple((card["name"], card["compute_capability"]) for card in gpu["cards"]),
        cdi=looked["docker"]["cdi"],
        on_bus=gpu["on_bus"],
        error=gpu["error"],
    )


def _result(target: Target, choice: Choice, seen: _Seen, request: Request, *, alone: bool) -> HostResult:
    report = seen.results.get((target.name, REPORT_TASK), {}).get("msg")
    deployment = None if report is None else _record(target, request, report, alone=alone)
    changes = tuple(seen.changes.get(target.name, ()))
    started = seen.results.get((target.name, WAIT_TASK), {}).get("seconds")
    return HostResult(
        host=target.name,
        choice=choice,
        changes=changes,
        deployment=deployment,
        seconds=started if changes else None,
        exposed=report is not None and not ip_address(report["bind"]).is_loopback,
    )


def _record(target: Target, request: Request, report: Mapping[str, Any], *, alone: bool) -> Deployment:
    """Return what is to be remembered of an engine; one that was not touched keeps its date."""
    name = request.name if alone else f"{request.name}@{target.name}"
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    new = Deployment(
        name=name,
        host=target.name,
        url=report["url"],
        served_model=report["served_model"],
        api_key_file=report["api_key_file"],
        image=report["image"],
        engine_version=report["version"],
        arguments=tuple(report["arguments"]),
        model_path=report["model"],
        ssh=ssh(target.connection),
        created=now,
        connection=dict(target.connection),
        asked=asked(request),
    )
    former = deployments.load(name) if name in deployments.names() else new
    return former if msgspec.structs.replace(new, created=former.created) == former else new


def _untried(outcome: Outcome, targets: Sequence[Target]) -> tuple[str, ...]:
    return tuple(one.name for one in targets if one.name not in outcome.changed and one.name not in outcome.failed)


def _remark(untried: Sequence[str]) -> str:
    return f"Not tried any more: {', '.join(untried)}." if untried else ""


def _failed(outcome: Outcome, remark: str) -> DeployError:
    reasons = [failures.explain(events, host) for host, events in outcome.failed.items()]
    engine_logs = [_keep_log(events[0]) for events in outcome.failed.values()]
    log = f"What Ansible did: {outcome.log}" if outcome.log else ""
    return DeployError("\n".join(part for part in (*reasons, remark, *engine_logs, log) if part))


def _keep_log(event: TaskEvent) -> str:
    """Keep what the engine said, which is gone with its container; return where it is."""
    lines = failures.engine_log(event)
    return f"What the engine said: {logs.keep(f'engine-{event.host}', chr(10).join(lines))}" if lines else ""


def _diffs(result: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the differences of a task, of all its items where it loops."""
    items = result.get("results", [result])
    found = [item.get("diff") for item in items if item.get("changed")]
    return tuple(one for diff in found if diff for one in (diff if isinstance(diff, list) else [diff]))
