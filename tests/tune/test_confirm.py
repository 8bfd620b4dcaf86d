"""Drift and luck do not make a winner: on engines without any difference, on machines that change, seldom is one found.

False winners are counted as false alarms of `compare` are: at most one run in a hundred, of each kind of drift.
"""

import math
import os
import random
from collections.abc import Callable

import pytest

from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.state import State
from tests.decode.servers import Server
from tests.tune.test_search import Simulated, candidates, tuned, wanted

RUNS = int(os.environ.get("TUNE_RUNS", "8"))  # of each kind of drift
NOISY = Server(request=0.03, spells=0.02, run=0.01, concurrencies=(1, 32))
STEPS = wanted("--a", "--b", "--c", "--d", "--e", "--f")
Drift = Callable[[random.Random], Callable[[float], float]]


def _still(_: random.Random) -> Callable[[float], float]:
    return lambda _minute: 1.0


def _step(by: float) -> Drift:
    """Let the machine change at once, by so much, at some minute of the run."""

    def made(chance: random.Random) -> Callable[[float], float]:
        at = chance.uniform(0.5, 10)
        return lambda minute: 1.0 if minute < at else by

    return made


def _trend(by: float) -> Drift:
    return lambda _chance: lambda minute: by ** (minute / 10)


def _walk(chance: random.Random) -> Callable[[float], float]:
    path = [0.0]
    for _ in range(60):
        path.append(path[-1] + chance.gauss(0, 0.01))
    return lambda minute: math.exp(path[min(int(minute), 60)])


def _spell(chance: random.Random) -> Callable[[float], float]:
    """Let something else run for some minutes, and slow it all down by a fifth."""
    begins, lasts = chance.uniform(0, 8), chance.uniform(1, 5)
    return lambda minute: 1.2 if begins <= minute < begins + lasts else 1.0


DRIFTS: dict[str, Drift] = {
    "still": _still,
    "quieter at once": _step(0.85),
    "busier at once": _step(1.18),
    "ever quieter": _trend(0.85),
    "ever busier": _trend(1.18),
    "walk": _walk,
    "a busy spell": _spell,
}


def run(drift: Drift, seed: int, times: dict[str, float] | None = None) -> State:
    chance = random.Random(f"{seed}")
    return tuned(Simulated(times or {}, machine=drift(chance), noise=NOISY, seed=seed), STEPS)


def false_winners(drift: Drift, runs: int) -> list[int]:
    return [seed for seed in range(runs) if run(drift, seed).chosen != Settings()]


@pytest.mark.usefixtures("fewer_resamples")
def test_drift_and_luck_make_no_winner() -> None:
    found = {name: false_winners(drift, RUNS) for name, drift in DRIFTS.items()}
    assert sum(map(len, found.values())) <= max(1, 0.01 * RUNS * len(DRIFTS)), found


@pytest.mark.usefixtures("fewer_resamples")
@pytest.mark.parametrize("name", DRIFTS)
def test_a_real_gain_is_found_on_a_machine_that_drifts_and_told_as_it_is(name: str) -> None:
    found = [run(DRIFTS[name], seed, {"--b": 0.75}) for seed in range(3)]
    right = [state for state in found if state.chosen.added == ("--b",)]
    assert len(right) >= 2, [candidates(state) for state in found]
    for state in right:
        last = state.confirmation
        assert last is not None
        assert last.gain is not None
        assert last.within is not None
        assert 1 / 0.75 / (1 + last.within) <= 1 + last.gain <= 1 / 0.75 * (1 + last.within)


def test_a_machine_that_gets_quieter_is_seen_at_once_and_is_the_new_measure() -> None:
    engine = Simulated({}, machine=lambda minute: 1.2 if minute < 1.5 else 1.0)
    state = tuned(engine, wanted("--a", "--b", "--c"))
    assert candidates(state) == ["not confirmed", "no gain", "no gain"]
    assert engine.starts == [(), ("--a",), (), ("--b",), ("--c",)]
    assert "as fast when it was measured once more" in state.rows[1].why


def test_what_held_for_a_while_is_taken_back_in_the_end() -> None:
    """A quiet spell around the winner and no other: it beat both neighbours, and does not when measured for itself."""
    engine = Simulated({}, machine=lambda minute: 0.8 if 1.5 < minute < 2.5 else 1.0)
    state = tuned(engine, wanted("--a", "--b"))
    assert candidates(state) == ["not confirmed", "no gain"]
    assert (state.chosen, state.settings(), state.is_open) == (Settings(), Settings(), False)
    assert state.confirmation is not None
    assert (state.confirmation.holds, state.confirmation.added) == (False, ("--a",))
    assert state.ended == "finished"
    assert state.best.rungs[0].output_tokens_per_s == 200


@pytest.mark.parametrize(("whim", "why"), [("breaks_at", "ValueError: no"), ("lies_at", "perplexity rose")])
def test_a_winner_that_fails_the_second_time_is_none(whim: str, why: str) -> None:
    fifth = {whim: 5}  # as found, --a, as found; as found, --a, as found
    state = tuned(Simulated({"--a": 0.7}, **fifth), wanted("--a"))  # type: ignore[arg-type]
    assert (candidates(state), state.chosen) == (["not confirmed"], Settings())
    assert state.confirmation is not None
    assert why in state.confirmation.why


def test_a_winner_without_what_it_is_to_beat_is_not_judged() -> None:
    state = tuned(Simulated({"--a": 0.7}, breaks_at=3), wanted("--a"))
    assert (candidates(state), state.confirmation) == (["not judged"], None)
    assert "as found could not be measured once more: it ended with status 1" in state.rows[1].why
