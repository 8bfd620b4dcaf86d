"""A service, candidates and a way to measure in; one variable changed at a time, its rows, and the best settings out.

Coordinate descent: every step starts from the best settings so far, and its winner is kept when it is faster beyond
noise, nowhere slower, answers as the engine as found does, and still is faster when what was best is measured again.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import DoctorError
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy, Answers, compared
from lpxdoctor.tune.confirm import again_row, confirmed
from lpxdoctor.tune.judge import Judged, judged, judged_twice, merged, rates
from lpxdoctor.tune.running import Run, words
from lpxdoctor.tune.service import NotStartedError, Settings
from lpxdoctor.tune.situation import Candidate
from lpxdoctor.tune.state import Row, State

_KEPT_SHARE = 0.25  # of the budget, at most, is kept for confirming before the search has ended


def first(run: Run, asked: str, boot: str = "") -> State | None:
    """Measure the engine as found; None when it was stopped.

    Raises:
        NotStartedError: it did not come up.
        DoctorError: it could not be measured.
    """
    try:
        found = run.tried(Settings(), "as found: starts")
    except NotStartedError as error:
        raise NotStartedError(f"The engine as found did not start: {error.whole}") from None
    if found is None:
        return None
    profile, answers, seconds = found
    row = Row(step="-", outcome=kept.FOUND, tokens_per_s=rates(profile), seconds=seconds)
    state = State(asked=asked, rows=(row,), reference=answers, first=profile, best=profile, boot=boot)
    kept.save(state)
    return state


def descend(run: Run, state: State, candidates: Sequence[Candidate]) -> State:
    """Try the candidates that have no row yet, step by step, confirm what is kept, and return all that was found.

    It ends early when the budget or the patience is used up, and when it is stopped; the state says which.
    """
    done = {(row.step, row.added, row.removed) for row in state.rows if row.outcome in kept.DONE}
    is_poor = False
    for step, group in groupby(candidates, key=lambda candidate: candidate.step):
        before = state.settings(but=step)
        for candidate in group:
            settings = candidate.settings
            if (step, settings.added, settings.removed) in done:
                continue
            poor, idle = _poor(run, state), _idle(run, state)
            if why := candidate.skipped or poor or idle:
                is_poor = is_poor or (not candidate.skipped and bool(poor) and not idle)
                outcome = kept.SKIPPED if candidate.skipped else kept.NOT_TRIED
                state = state.with_row(_row(candidate, outcome=outcome, why=why))
                continue
            after = _step(run, state, candidate, before)
            if after is None:
                return state
            state = after
            kept.save(state)
    if is_poor and not _confirms(run, state):
        state = msgspec.structs.replace(state, ended=kept.OUT_OF_BUDGET)
        kept.save(state)
        return state
    return confirmed(run, state, kept.OUT_OF_BUDGET if is_poor else kept.FINISHED)


def _poor(run: Run, state: State) -> str:
    """Return why the budget allows no further candidate, "" where it does.

    A long one keeps enough to confirm what was kept; a short one goes into the search, and --resume confirms.
    """
    left = run.left_s() / state.longest_s
    budget = f"the budget of {run.budget_s / 60:.0f} min"
    if left < kept.A_TRY:
        each = f"{kept.A_TRY} starts of up to {state.longest_s / 60:.1f} min"
        return f"what is left of {budget}, {max(run.left_s(), 0) / 60:.1f} min, does not last for {each}"
    if _confirms(run, state) and state.is_open and left < kept.A_CONFIRMATION + kept.A_TRY:
        return f"what is left of {budget} is for confirming what was kept"
    return ""


def _confirms(run: Run, state: State) -> bool:
    """Tell whether what was kept is to be confirmed though the budget ends the search: it lasts, and is long enough."""
    needed = kept.A_CONFIRMATION * state.longest_s
    return needed <= min(_KEPT_SHARE * run.budget_s, run.left_s())


def _idle(run: Run, state: State) -> str:
    """Return why nothing more is worth trying, "" while something may be."""
    steps = [(step, [row.outcome for row in rows]) for step, rows in groupby(_tries(state), key=lambda row: row.step)]
    idle = 0
    for _, outcomes in steps:
        idle = 0 if kept.KEPT in outcomes else idle + 1
    return f"the last {idle} steps gained nothing beyond noise" if idle >= run.policy.tune.patience else ""


def _tries(state: State) -> list[Row]:
    tried = (kept.KEPT, kept.NO_GAIN, kept.NOT_CONFIRMED, kept.INACCURATE)
    return [row for row in state.rows if row.outcome in tried]


def _step(run: Run, state: State, candidate: Candidate, before: Settings) -> State | None:
    """Try one candidate on top of what was best before its step; None when it was stopped."""
    began, settings = run.clock(), before.and_(candidate.settings)
    try:
        found = run.tried(settings, f"{candidate.step}: {candidate.told}")
    except NotStartedError as error:
        return state.with_row(
            _row(candidate, outcome=kept.NOT_STARTED, why=str(error), log=error.kept, seconds=run.clock() - began)
        )
    except DoctorError as error:
        why = str(error).splitlines()[0]
        return state.with_row(_row(candidate, outcome=kept.UNJUDGED, why=why, seconds=run.clock() - began))
    return None if found is None else _judged(run, state, candidate, settings, found)


def _judged(
    run: Run, state: State, candidate: Candidate, settings: Settings, found: tuple[Profile, Answers, float]
) -> State | None:
    """Add the candidate's row; where it seems to gain, measure once more what it is to beat. None when stopped."""
    profile, answers, seconds = found
    accuracy = compared(state.reference, answers, run.policy.tune)
    told = partial(_row, candidate, tokens_per_s=rates(profile), accuracy=accuracy, seconds=seconds)
    verdict = judged((state.best,), profile, accuracy, run.policy)
    if not verdict.may_gain(run.policy.tune):
        return state.with_row(told(**asdict(verdict)))
    try:
        looked = _looked_at_again(run, state, settings, profile, accuracy)
    except _UnmeasuredError as error:
        return state.with_row(told(outcome=kept.UNJUDGED, why=str(error)))
    if looked is None:
        return None
    verdict, best, rows = looked
    state = state.with_row(told(**asdict(verdict)))
    return msgspec.structs.replace(state, best=best, rows=(*state.rows, *rows))


class _UnmeasuredError(Exception):
    """What is to be held against a candidate could not be measured once more."""


def _looked_at_again(
    run: Run, state: State, settings: Settings, profile: Profile, accuracy: Accuracy
) -> tuple[Judged, Profile, tuple[Row, ...]] | None:
    """Measure what a candidate is to beat once more, and the candidate too where noise still may have made its gain.

    Return its verdict, what is best now, measured on the machine as it is now, and a row for each; None when stopped.
    """
    best, rows = state.settings(), list[Row]()

    def again(one: Settings) -> tuple[Profile, Answers] | None:
        try:
            tried = run.tried(one, f"{words(one)}, once more")
        except DoctorError as error:
            raise _UnmeasuredError(
                f"{words(one)} could not be measured once more: {str(error).splitlines()[0]}"
            ) from None
        if tried is None:
            return None
        rows.append(again_row(one, tried[0], tried[2]))
        return tried[:2]

    if (found := again(best)) is None:
        return None
    behind, _ = found
    before = (state.best, behind)
    verdict = judged(before, profile, accuracy, run.policy)
    may_gain = judged((behind,), profile, accuracy, run.policy).may_gain(run.policy.tune)
    if verdict.outcome != kept.KEPT and may_gain:
        if run.left_s() < state.longest_s:
            verdict = replace(
                verdict, why="it gained no more than noise may make, and the budget allows no second look"
            )
        elif (found := again(settings)) is None:
            return None
        else:
            twice = (profile, found[0])
            verdict = judged_twice(before, twice, compared(state.reference, found[1], run.policy.tune), run.policy)
            profile = merged(twice)
    now = profile if verdict.outcome == kept.KEPT else behind if behind.is_valid else state.best
    return verdict, now, tuple(rows)


def _row(candidate: Candidate, **values: Any) -> Row:
    settings = candidate.settings
    return Row(step=candidate.step, added=settings.added, removed=settings.removed, reason=candidate.reason, **values)
