"""A service, candidates and a way to measure in; one variable changed at a time, its rows, and the best settings out.

Coordinate descent: every step starts from the best settings so far, and its winner is kept when it is faster beyond
noise, nowhere slower, and answers as the engine as found does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import msgspec

from lpxdoctor.decode.compare import Comparison, Verdict, compare
from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import DoctorError
from lpxdoctor.policy import Policy
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy, Answers, compared
from lpxdoctor.tune.candidates import Candidate
from lpxdoctor.tune.service import NotStartedError, Service, Settings, StoppedError
from lpxdoctor.tune.state import Row, State


class Measured(Protocol):
    """Measures what runs at a place: its speed and its answers; None when it was stopped before it had both."""

    def __call__(self, where: str, settings: Settings, /) -> tuple[Profile, Answers] | None:
        """Measure; DoctorError when it cannot be."""
        ...


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run works with; clock tells seconds, tell takes a line of progress."""

    service: Service
    measured: Measured
    policy: Policy
    budget_s: float
    is_stopped: Callable[[], bool]
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    began: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """Return what is left of the budget."""
        return self.budget_s - (self.clock() - self.began)


def first(run: Run, asked: str) -> State | None:
    """Measure the engine as found; None when it was stopped.

    Raises:
        NotStartedError: it did not come up.
        DoctorError: it could not be measured.
    """
    run.tell(f"as found: starts ({run.budget_s / 60:.0f} min in all)")
    began = run.clock()
    try:
        found = _tried(run, Settings())
    except StoppedError:
        return None
    except NotStartedError as error:
        raise NotStartedError(f"The engine as found did not start: {error.whole}") from None
    if found is None:
        return None
    profile, answers = found
    row = Row(step="-", outcome=kept.FOUND, tokens_per_s=rates(profile), seconds=run.clock() - began)
    state = State(asked=asked, rows=(row,), reference=answers, first=profile, best=profile)
    kept.save(state)
    return state


def descend(run: Run, state: State, candidates: Sequence[Candidate]) -> State:
    """Try the candidates that have no row yet, step by step, and return all that was found.

    It ends early when the budget or the patience is used up, and when it is stopped; the state says which.
    """
    done = {(row.step, row.added, row.removed) for row in state.rows if row.outcome in kept.DONE}
    for step, group in groupby(candidates, key=lambda candidate: candidate.step):
        before = state.settings(but=step)
        for candidate in group:
            settings = candidate.settings
            if (step, settings.added, settings.removed) in done:
                continue
            why = candidate.skipped or _not_tried(run, state)
            if why:
                outcome = kept.SKIPPED if candidate.skipped else kept.NOT_TRIED
                state = state.with_row(_row(candidate, outcome=outcome, why=why))
                continue
            after = _step(run, state, candidate, before)
            if after is None:
                return state
            state = after
            kept.save(state)
    poor = any(row.outcome == kept.NOT_TRIED and row.why == _poor(run) for row in state.rows)
    state = msgspec.structs.replace(state, ended=kept.OUT_OF_BUDGET if poor else kept.FINISHED)
    kept.save(state)
    return state


def _poor(run: Run) -> str:
    return f"the budget of {run.budget_s / 60:.0f} min is used up"


def _not_tried(run: Run, state: State) -> str:
    """Return why nothing more is tried, "" while something may be."""
    longest = max(row.seconds for row in state.rows)
    if run.left_s() < longest:
        return _poor(run)
    steps = [(step, [row.outcome for row in rows]) for step, rows in groupby(_tries(state), key=lambda row: row.step)]
    idle = 0
    for _, outcomes in steps:
        idle = 0 if kept.KEPT in outcomes else idle + 1
    return f"the last {idle} steps gained nothing beyond noise" if idle >= run.policy.tune.patience else ""


def _tries(state: State) -> list[Row]:
    return [row for row in state.rows if row.outcome in (kept.KEPT, kept.NO_GAIN, kept.INACCURATE)]


def _step(run: Run, state: State, candidate: Candidate, before: Settings) -> State | None:
    """Try one candidate on top of what was best before its step; None when it was stopped."""
    began = run.clock()
    run.tell(f"{candidate.step}: {candidate.told} ({run.left_s() / 60:.0f} of {run.budget_s / 60:.0f} min left)")
    try:
        found = _tried(run, before.and_(candidate.settings))
    except StoppedError:
        return None
    except NotStartedError as error:
        return state.with_row(
            _row(candidate, outcome=kept.NOT_STARTED, why=str(error), log=error.kept, seconds=run.clock() - began)
        )
    except DoctorError as error:
        why = str(error).splitlines()[0]
        return state.with_row(_row(candidate, outcome=kept.UNJUDGED, why=why, seconds=run.clock() - began))
    if found is None:
        return None
    return _judged(run, state, candidate, found, run.clock() - began)


def _judged(run: Run, state: State, candidate: Candidate, found: tuple[Profile, Answers], seconds: float) -> State:
    profile, answers = found
    accuracy = compared(state.reference, answers, run.policy.tune)
    comparison = compare(state.best, profile, run.policy.compare)
    outcome, why = decided(comparison, accuracy, run.policy)
    gain, within = _gain(comparison)
    row = _row(
        candidate,
        outcome=outcome,
        why=why,
        tokens_per_s=rates(profile),
        gain=gain,
        within=within,
        accuracy=accuracy,
        seconds=seconds,
    )
    state = state.with_row(row)
    return msgspec.structs.replace(state, best=profile) if outcome == kept.KEPT else state


def decided(comparison: Comparison, accuracy: Accuracy, policy: Policy) -> tuple[str, str]:
    """Return the outcome of a candidate and why."""
    if accuracy.wrong:
        return kept.INACCURATE, accuracy.wrong
    overall = comparison.overall
    broken = [row for row in comparison.rungs if not row.changes]
    if overall is None or broken:
        return kept.UNJUDGED, "; ".join(f"{row.concurrency} at once: {row.why}" for row in broken) or comparison.why
    slower = [
        row for row in comparison.rungs if row.verdict is Verdict.SLOWER and row.changes["tokens_per_s"].slower > 0
    ]
    if slower:
        return kept.NO_GAIN, f"slower at {', '.join(str(row.concurrency) for row in slower)}"
    rate = overall.changes["tokens_per_s"]
    if rate.is_real and rate.b / rate.a - 1 >= policy.tune.least_gain:
        return kept.KEPT, ""
    return kept.NO_GAIN, ""


def _gain(comparison: Comparison) -> tuple[float | None, float | None]:
    if comparison.overall is None:
        return None, None
    rate = comparison.overall.changes["tokens_per_s"]
    return rate.b / rate.a - 1, rate.within


def _tried(run: Run, settings: Settings) -> tuple[Profile, Answers] | None:
    with run.service.running(settings, run.is_stopped) as where:
        return run.measured(where, settings)


def rates(profile: Profile) -> dict[int, float]:
    """Return tokens/s by concurrency."""
    return {
        rung.concurrency: rung.output_tokens_per_s for rung in profile.rungs if rung.output_tokens_per_s is not None
    }


def _row(candidate: Candidate, **values: Any) -> Row:
    settings = candidate.settings
    return Row(step=candidate.step, added=settings.added, removed=settings.removed, reason=candidate.reason, **values)
