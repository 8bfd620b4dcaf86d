"""A wish and a service in, the state of a finished or interrupted run out: where everything comes together."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.measure import Plan
from lpxdoctor.decode.profile import Rung
from lpxdoctor.policy import Policy
from lpxdoctor.sizing.plan import Plan as Sizing
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Prompts
from lpxdoctor.tune.candidates import candidates
from lpxdoctor.tune.measuring import Measuring, enough
from lpxdoctor.tune.resume import boot_id, taken_up
from lpxdoctor.tune.running import Run
from lpxdoctor.tune.search import descend, first
from lpxdoctor.tune.service import Service, Settings
from lpxdoctor.tune.situation import Candidate, Situation
from lpxdoctor.tune.state import State

_SILENCE_S = 120.0  # of an engine that answers, after which a request counts as failed


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be tuned for; steps are the rules to follow."""

    concurrencies: tuple[int, ...]
    requests: int | None
    input_len: int
    output_len: int
    budget_s: float
    prompts: Prompts
    steps: tuple[str, ...]
    given: tuple[Settings, ...]
    speculate: tuple[str, ...]
    unique_prompts: bool
    key_file: Path | None
    keep: bool  # leave the service with what was chosen, unless the run was interrupted
    command: tuple[str, ...]

    def told(self, service: Service) -> str:
        """Return what tells this run from others: whoever resumes must ask for the same."""
        lengths = (self.input_len, self.output_len)
        return json.dumps([service.name, self.concurrencies, self.requests, lengths, self.prompts.prompts])


@dataclass(frozen=True, kw_only=True)
class Audience:
    """Who is told, and who may stop it."""

    is_stopped: Callable[[], bool]
    tell: Callable[[str], None]
    on_rung: Callable[[Rung], None]


def tuned(
    service: Service, wish: Wish, policy: Policy, sizing: Sizing | str, audience: Audience, *, resume: bool
) -> State | None:
    """Tune; None when it was stopped before the engine as found, or what was best of it, was measured.

    Raises:
        UsageError: there is nothing to resume, or the set-up is another one by now.
        DoctorError: the engine as found did not come up or could not be measured.
    """
    asked = wish.told(service)
    begun = kept.load(asked) if resume else None
    run = Run(
        service=service,
        measured=_measuring(service, wish, policy, audience, begun),
        policy=policy,
        budget_s=wish.budget_s,
        is_stopped=audience.is_stopped,
        tell=audience.tell,
    )
    left = Settings()
    try:
        state = taken_up(run, begun, boot_id()) if begun else first(run, asked, boot_id())
        if state is None:
            return None
        state = descend(run, state, _candidates(service, wish, sizing, state))
        if wish.keep and state.ended:
            left = state.chosen
        return state
    finally:
        service.leave(left)


def _candidates(service: Service, wish: Wish, sizing: Sizing | str, state: State) -> list[Candidate]:
    situation = Situation(
        first=state.first,
        flags=service.hints.flags,
        plan=sizing,
        model=service.hints.model,
        unique_prompts=wish.unique_prompts,
        speculate=wish.speculate,
        given=wish.given,
    )
    return [one for one in candidates(situation) if one.step.partition(" ")[0] in wish.steps]


def _measuring(service: Service, wish: Wish, policy: Policy, audience: Audience, begun: State | None) -> Measuring:
    plan = Plan(
        concurrencies=wish.concurrencies,
        requests=wish.requests,
        input_len=wish.input_len,
        output_len=wish.output_len,
        timeout_s=_SILENCE_S,
        command=wish.command,
    )
    return Measuring(
        service=service,
        plan=replace(plan, requests=enough(plan, begun.first)) if begun and not wish.requests else plan,
        prompts=wish.prompts,
        key_file=wish.key_file,
        hooks=Hooks(is_stopped=audience.is_stopped),
        on_rung=audience.on_rung,
        noise=policy.compare.noise["tokens_per_s"],
    )
