"""What was kept in; it measured once more between two measurements of the engine as found, and whether it holds, out.

A winner is the luckiest of all that were tried, so its own measurement tells more than it gains. The one here has
not been chosen by: it may be lucky or not. Where it does not beat the engine as found both times, nothing is chosen.
"""

import math

import msgspec

from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import DoctorError
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy, compared
from lpxdoctor.tune.judge import Judged, judged, rates
from lpxdoctor.tune.running import Run, words
from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.state import Confirmation, Row, State


def confirmed(run: Run, state: State, ended: str) -> State:
    """Return the state with what was kept confirmed or taken back, and how the run ended.

    Where the budget does not last for it the run is out of budget; where it was stopped, it has not ended.
    """
    if state.is_open and run.left_s() < kept.A_CONFIRMATION * state.longest_s:
        ended = kept.OUT_OF_BUDGET
    elif state.is_open:
        try:
            found = _measured(run, state)
        except DoctorError as error:
            found = _taken_back(state, f"it could not be measured once more: {str(error).splitlines()[0]}")
        if found is None:
            return state
        state = found
    state = msgspec.structs.replace(state, ended=ended)
    kept.save(state)
    return state


def again_row(settings: Settings, profile: Profile, seconds: float) -> Row:
    """Return the row of settings that were measured once more."""
    return Row(
        step="-",
        added=settings.added,
        removed=settings.removed,
        outcome=kept.AGAIN,
        tokens_per_s=rates(profile),
        seconds=seconds,
    )


def _measured(run: Run, state: State) -> State | None:
    """Measure as found, as chosen and as found; None when it was stopped."""
    chosen, profiles = state.settings(), list[Profile]()
    accuracy = Accuracy(None, None, agreement_counts=False)
    for number, settings in enumerate((Settings(), chosen, Settings()), start=1):
        found = run.tried(settings, f"confirmation {number} of {kept.A_CONFIRMATION}: {words(settings)}")
        if found is None:
            return None
        profile, answers, seconds = found
        if settings == chosen:
            accuracy = compared(state.reference, answers, run.policy.tune)
        profiles.append(profile)
        state = state.with_row(again_row(settings, profile, seconds))
    before, middle, after = profiles
    verdict = judged((before, after), middle, accuracy, run.policy)
    if verdict.outcome != kept.KEPT:
        return msgspec.structs.replace(_taken_back(state, verdict.why, verdict), best=after)
    gains = {
        one: rate / math.sqrt(rates(before)[one] * rates(after)[one]) - 1
        for one, rate in rates(middle).items()
        if one in rates(before) and one in rates(after)
    }
    last = Confirmation(
        added=chosen.added,
        removed=chosen.removed,
        holds=True,
        gain=verdict.gain,
        within=verdict.within,
        gains=gains,
    )
    return msgspec.structs.replace(state, confirmation=last, best=middle)


def _taken_back(state: State, why: str, verdict: Judged | None = None) -> State:
    """Return the state with nothing kept, so that whatever follows starts from the engine as found."""
    chosen = state.settings()
    rows = tuple(
        msgspec.structs.replace(row, outcome=kept.NOT_CONFIRMED, why="taken back in the end")
        if row.outcome == kept.KEPT
        else row
        for row in state.rows
    )
    last = Confirmation(
        added=chosen.added,
        removed=chosen.removed,
        holds=False,
        why=why,
        gain=verdict.gain if verdict else None,
        within=verdict.within if verdict else None,
    )
    return msgspec.structs.replace(state, rows=rows, confirmation=last, best=state.first)
