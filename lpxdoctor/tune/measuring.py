"""A place where an engine runs in, its profile and its answers out: one reading of both for every candidate.

All candidates get as many requests as keep the engine as found busy for some seconds: in less, chance is more than what
most arguments gain. What was disturbed is measured once more, in the same engine: to start another costs minutes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from lpxdoctor.decode.gpu import sampled
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.measure import Plan, measure, usual_requests
from lpxdoctor.decode.noise import runs
from lpxdoctor.decode.profile import Profile, Rung
from lpxdoctor.decode.target import Target, reached
from lpxdoctor.deployments import Deployment
from lpxdoctor.tune.accuracy import Answers, Prompts, asked
from lpxdoctor.tune.service import Service, Settings

_LEAST_S = 15.0
_LONGER = 4  # times as many requests halve what spells make of the mean


@dataclass(kw_only=True)
class Measuring:
    """How every candidate is measured; the plan's requests are settled by the first measurement, unless asked for.

    noise is the share by which the tokens/s of two runs differ anyway: a run that tells its own no better is too short.
    """

    service: Service
    plan: Plan
    prompts: Prompts
    key_file: Path | None
    hooks: Hooks
    on_rung: Callable[[Rung], None]
    noise: float

    def __call__(self, where: str, settings: Settings, /) -> tuple[Profile, Answers] | None:
        """Measure speed and answers; None when it was stopped before it had both.

        Raises:
            MeasureError: the engine does not answer, or refuses everything.
            UsageError: the plan does not fit the model.
        """
        with reached(where, model=None, key_file=self.key_file) as there, sampled(local=there.is_local) as sampler:
            most = max(self.plan.concurrencies)
            answers = asked(there.endpoint, there.model.id, self.prompts, most, self.hooks.is_stopped)
            known = self._with_record(there, settings)

            def once_more(found: Profile, more: Plan | None) -> Profile | None:
                if more is None or self.hooks.is_stopped():
                    return found
                newer = measure(known, more, sampler, self.hooks, self.on_rung)
                return None if newer is None else with_newer(found, newer)

            profile = measure(known, self.plan, sampler, self.hooks, self.on_rung)
            if profile is not None and self.plan.requests is None:
                usual, self.plan = self.plan, replace(self.plan, requests=enough(self.plan, profile))
                profile = once_more(profile, too_short(usual, self.plan))
            if profile is not None:
                profile = once_more(profile, again(self.plan, profile, self.noise))
        if profile is None or profile.interrupted or self.hooks.is_stopped():
            return None
        if there.deployment is None:
            own = msgspec.structs.replace(profile.engine, image=None)
            unknown = {**profile.unknown, "engine.image": "started by a command"}
            profile = msgspec.structs.replace(profile, deployment=None, engine=own, unknown=unknown)
        return msgspec.structs.replace(profile, name="tune"), answers

    def _with_record(self, there: Target, settings: Settings) -> Target:
        """Add what the command tells of an engine that is no deployment on record."""
        arguments = self.service.arguments(settings)
        if there.deployment is not None or arguments is None:
            return there
        record = Deployment(
            name="command",
            host="localhost",
            url=there.endpoint.url,
            served_model=there.model.id,
            api_key_file=None,
            image="",
            engine_version="",
            arguments=arguments,
            model_path=self.service.hints.model or "",
            ssh=(),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        return replace(there, deployment=record)


def with_newer(older: Profile, newer: Profile) -> Profile:
    """Return a profile with those rungs in place of the older ones that were measured once more."""
    anew = {rung.concurrency: rung for rung in newer.rungs}
    rungs = tuple(anew.get(rung.concurrency, rung) for rung in older.rungs)
    return msgspec.structs.replace(newer, started=older.started, rungs=rungs)


def too_short(usual: Plan, settled: Plan) -> Plan | None:
    """Return how to measure once more what got fewer requests than were settled then."""
    return _of(
        settled, [one for one in usual.concurrencies if usual_requests(settled, one) > usual_requests(usual, one)]
    )


def again(plan: Plan, found: Profile, noise: float) -> Plan | None:
    """Return how to measure once more what was disturbed: longer, where it varied too much to tell its mean."""
    disturbed = {rung.concurrency for rung in found.rungs if not rung.valid}  # by what is mostly over
    uncertain = set[int]()
    if isinstance(plan.requests, Mapping):
        uncertain = {one for one, error in errors(found).items() if error > noise} - disturbed
        plan = replace(
            plan, requests={one: count * (_LONGER if one in uncertain else 1) for one, count in plan.requests.items()}
        )
    return _of(plan, [one for one in plan.concurrencies if one in disturbed | uncertain])


def _of(plan: Plan, concurrencies: Sequence[int]) -> Plan | None:
    """Return the part of a plan that is of these, None where there are none."""
    return replace(plan, concurrencies=tuple(concurrencies)) if concurrencies else None


def errors(profile: Profile) -> Mapping[int, float]:
    """Return by concurrency the standard error of the tokens/s, as a share, by what varied within a run."""
    found = [(rung.concurrency, run) for rung in profile.rungs if not isinstance(run := runs(rung), str)]
    return {one: math.sqrt(run["tokens_per_s"].variance) for one, run in found}


def enough(plan: Plan, found: Profile) -> Mapping[int, int]:
    """Return by concurrency how many requests take the engine as found long enough."""
    rates = {rung.concurrency: rung.output_tokens_per_s or 0.0 for rung in found.rungs}
    return {
        one: max(usual_requests(plan, one), math.ceil(rates.get(one, 0.0) * _LEAST_S / plan.output_len))
        for one in plan.concurrencies
    }
