"""What is done to the hosts of a batch: playbooks, checks, an engine and its baseline; how each ended on each, out."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpxdoctor import catalog, fleet, galaxy, inventory, playbook
from lpxdoctor.check import Check
from lpxdoctor.decode import store
from lpxdoctor.decode.gpu import sampled
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.measure import Plan, measure
from lpxdoctor.decode.target import reached
from lpxdoctor.deploy import failures as engine_failures
from lpxdoctor.deploy import rollout
from lpxdoctor.deploy.request import Request, known_variables
from lpxdoctor.deploy.variant import catalogue, named
from lpxdoctor.errors import DeployError, MeasureError, SetupError, UsageError
from lpxdoctor.evaluate import Judgement, evaluate, probes_of
from lpxdoctor.evidence import Evidence
from lpxdoctor.fix import failures
from lpxdoctor.fleet import FleetHost, NoAnswer
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import TaskEvent
from lpxdoctor.policy import Policy
from lpxdoctor.provision import gate
from lpxdoctor.provision.record import Phase
from lpxdoctor.provision.run import Ended, Step

PLAYBOOK_LIMIT_S = 4 * 3600.0  # drivers built on many hosts, and reboots
BASELINE_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a run works with."""

    source: Source
    hosts: tuple[FleetHost, ...]
    variables: Mapping[str, Any]  # of the roles, for every host
    playbooks: tuple[str, ...]
    name: str  # of the engine
    variant: str | None
    reboot: bool
    container_test: bool
    policy: Policy
    on_event: Callable[[TaskEvent], None]


def of(job: Job) -> Mapping[Phase, Step]:
    """Return the steps in their order: an engine's only where one is described."""
    engine = {name: value for name, value in job.variables.items() if name in known_variables()}
    rest = {name: value for name, value in job.variables.items() if name not in engine}
    steps: dict[Phase, Step] = {
        "playbooks": lambda names, _: _play(job, rest, names),
        "check": lambda names, _: _check(job, names),
    }
    if job.variant is not None:
        named(catalogue(), job.variant)  # refused now, and not when hosts were changed already
    if "engine_model" in engine:
        request = Request(name=job.name, variables=engine, variant=job.variant)
        steps["deploy"] = lambda names, _: _deploy(job, request, names)
        steps["baseline"] = lambda names, canary: {name: _baseline(job, name, canary) for name in names}
    return steps


def _play(job: Job, variables: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Ended]:
    """Run the playbooks one after the other; a host where one fails is left by the next."""
    ended = dict.fromkeys(names, Ended())
    given = {**variables, **({"reboot_allowed": True} if job.reboot else {})}
    for name in job.playbooks:
        left = [host for host, so_far in ended.items() if not so_far.failure and not so_far.untried]
        now = _played(job, name, given, left) if left else {}
        ended |= {host: replace(one, changed=one.changed + ended[host].changed) for host, one in now.items()}
    return ended


def _played(job: Job, name: str, given: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Ended]:
    try:
        outcome = playbook.run(
            name,
            [job.source, inventory.for_hosts(dict.fromkeys(names, given))],
            collections=galaxy.ensure(),
            on_event=job.on_event,
            hosts=names,
            limit_s=PLAYBOOK_LIMIT_S,
        )
    except SetupError as error:
        return dict.fromkeys(names, Ended(failure=str(error)))
    log = f"\nAll that Ansible said: {outcome.log}" if outcome.log else ""
    failed = {
        host: Ended(failure=f"{name}.yml: {failures.explain(events, host)}{log}", changed=outcome.partly[host])
        for host, events in outcome.failed.items()
    }
    changed = {host: Ended(changed=count) for host, count in outcome.changed.items()}
    return {host: failed.get(host) or changed.get(host) or Ended(untried=True) for host in names}


def _check(job: Job, names: Sequence[str]) -> Mapping[str, Ended]:
    checks = catalog.load(catalog.SITE_CHECKS)
    asked = [host for host in job.hosts if host.name in names]
    rows = fleet.collect(asked, probes_of(checks), container_test=job.container_test)
    return {name: Ended(failure=gate.of_check(_judged(job, checks, row))) for name, row in rows.items()}


def _judged(job: Job, checks: Sequence[Check[...]], row: Evidence | NoAnswer) -> Judgement | NoAnswer:
    if isinstance(row, NoAnswer):
        return row
    return evaluate(checks, row, job.policy, datetime.date.today())  # noqa: DTZ011 - a waiver ends on a local day


def _deploy(job: Job, request: Request, names: Sequence[str]) -> Mapping[str, Ended]:
    try:
        done = rollout.attempt(request, job.source, job.on_event, hosts=names)
    except (DeployError, SetupError, UsageError) as error:
        return dict.fromkeys(names, Ended(failure=str(error)))
    failed = {
        name: Ended(failure=engine_failures.explain(events, name)) for name, events in done.outcome.failed.items()
    }
    well = {result.host: Ended() for result in done.results}
    return {name: failed.get(name) or well.get(name) or Ended(untried=True) for name in names}


def _baseline(job: Job, name: str, canary: Mapping[str, float]) -> Ended:
    """Measure one host: one after the other, for this machine's client is part of what is measured."""
    wanted = job.policy.provision
    plan = Plan(
        concurrencies=wanted.concurrencies,
        requests=wanted.requests,
        input_len=wanted.input_len,
        output_len=wanted.output_len,
        timeout_s=BASELINE_TIMEOUT_S,
        command=("lpxdoctor", "provision"),
    )
    try:
        store.check(None)
        with (
            reached(f"{job.name}@{name}", model=None, key_file=None) as there,
            sampled(local=there.is_local) as sampler,
        ):
            profile = measure(there, plan, sampler, Hooks(), lambda _: None)
        kept = profile and store.save(profile, None)
    except (MeasureError, UsageError, SetupError) as error:
        return Ended(failure=str(error))
    if profile is None:
        return Ended(failure="nothing was measured")
    failure = gate.of_baseline(profile, canary, wanted.least_share)
    return Ended(failure=f"{failure}\nThe baseline: {kept}" if failure else "", tokens_per_s=gate.rates(profile))
