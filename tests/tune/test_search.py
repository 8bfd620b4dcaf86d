"""The search keeps what is faster and sound, one variable at a time, and stops, ends and goes on as it should."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from lpxdoctor import policy
from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import UsageError
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Answers
from lpxdoctor.tune.completions import Said
from lpxdoctor.tune.running import Run
from lpxdoctor.tune.search import descend, first
from lpxdoctor.tune.service import Hints, NotStartedError, Settings, StoppedError
from lpxdoctor.tune.situation import Candidate
from lpxdoctor.tune.state import State
from tests.decode.servers import Server, measured

SOUND = Answers((Said(("a", "b"), (-0.1, -0.1)),), (Said(("x", "y"), (-2.0, -2.0)),))
WRONG = Answers((Said(("q", "r"), (-0.1, -0.1)),), (Said(("x", "y"), (-4.0, -4.0)),))


@dataclass
class Simulated:
    """An engine whose speed is a product of its flags': a time below 1 is faster. Each start takes minutes_each.

    machine tells by what its times are multiplied at a minute since the run began.
    """

    times: Mapping[str, float]
    machine: Callable[[float], float] = lambda _minute: 1.0
    noise: Server = field(default_factory=lambda: Server(request=0.02, concurrencies=(1, 32)))
    seed: object = 0
    broken: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    stops_at: str = ""
    stops_after: int = 0  # starts
    breaks_at: int = 0  # the start that does not come up
    lies_at: int = 0  # the start that answers wrongly
    name: str = "simulated"
    hints: Hints = field(default_factory=Hints)
    starts: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    minutes_each: float = 1.0
    now: float = 0.0
    left: Settings | None = None

    def arguments(self, _settings: Settings, /) -> None:
        return None

    @contextmanager
    def running(self, settings: Settings, _is_stopped: Callable[[], bool], /) -> Generator[str]:
        self.starts.append(settings.added)
        self.now += 60 * self.minutes_each
        if self.stops_at in settings.added or len(self.starts) == self.stops_after + 1 > 1:
            raise StoppedError("Interrupted while the engine started.")
        if set(settings.added) & set(self.broken) or len(self.starts) == self.breaks_at:
            raise NotStartedError("it ended with status 1: ValueError: no")
        yield "http://simulated"

    def leave(self, settings: Settings, /) -> None:
        self.left = settings

    def measure(self, _where: str, settings: Settings, /) -> tuple[Profile, Answers]:
        slower = self.machine(self.now / 60)
        for flag in settings.added:
            slower *= self.times.get(flag, 1.0)
        profile = measured(replace(self.noise, slower=slower - 1), (self.seed, len(self.starts)))
        rungs = tuple(
            msgspec.structs.replace(rung, output_tokens_per_s=200 * rung.concurrency / slower) for rung in profile.rungs
        )
        is_wrong = set(settings.added) & set(self.wrong) or len(self.starts) == self.lies_at
        answers = WRONG if is_wrong else SOUND
        return msgspec.structs.replace(profile, rungs=rungs), answers


def run_of(engine: Simulated, budget_min: float = 60) -> Run:
    return Run(
        service=engine,
        measured=engine.measure,
        policy=policy.load(),
        budget_s=budget_min * 60,
        is_stopped=lambda: False,
        tell=lambda _line: None,
        clock=lambda: engine.now,
        began=0.0,
    )


def wanted(*flags: str, step: str = "") -> list[Candidate]:
    return [Candidate(step=step or flag, settings=Settings((flag,)), reason="why not") for flag in flags]


def tuned(engine: Simulated, candidates: list[Candidate], budget_min: float = 60) -> State:
    run = run_of(engine, budget_min)
    begun = first(run, "this")
    assert begun is not None
    return descend(run, begun, candidates)


def outcomes(state: State) -> list[str]:
    return [row.outcome for row in state.rows]


def candidates(state: State) -> list[str]:
    return [row.outcome for row in state.rows if row.outcome not in (kept.FOUND, kept.AGAIN)]


def test_gains_add_up_and_what_gains_nothing_is_left() -> None:
    engine = Simulated({"--a": 0.7, "--b": 1.0, "--c": 0.9})
    state = tuned(engine, wanted("--a", "--b", "--c"))
    assert candidates(state) == ["kept", "no gain", "kept"]
    assert state.chosen.added == ("--a", "--c")
    # What is to be beaten is measured once more behind each winner, and in the end all between two of as found.
    assert engine.starts == [(), ("--a",), (), ("--a", "--b"), ("--a", "--c"), ("--a",), (), ("--a", "--c"), ()]
    assert state.rows[1].gain == pytest.approx(1 / 0.7 - 1, abs=0.03)
    assert state.confirmation is not None
    assert state.confirmation.gains == {1: pytest.approx(1 / 0.63 - 1), 32: pytest.approx(1 / 0.63 - 1)}
    assert state.confirmation.gain == pytest.approx(1 / 0.63 - 1, abs=0.03)
    assert state.ended == "finished"


def test_the_best_value_of_a_variable_is_kept() -> None:
    engine = Simulated({"--x": 0.9, "--y": 0.7, "--z": 0.8})
    state = tuned(engine, wanted("--x", "--y", "--z", step="one"))
    assert candidates(state) == ["kept", "kept", "no gain"]
    assert state.chosen.added == ("--y",)
    assert engine.starts == [(), ("--x",), (), ("--y",), ("--x",), ("--z",), (), ("--y",), ()]


def test_a_fast_wrong_answer_loses() -> None:
    state = tuned(Simulated({"--fast": 0.5}, wrong=("--fast",)), wanted("--fast"))
    assert outcomes(state) == ["as found", "inaccurate"]
    assert "perplexity rose" in state.rows[1].why
    assert state.settings() == Settings()


def test_one_that_does_not_start_is_a_row_and_not_the_end() -> None:
    state = tuned(Simulated({"--b": 0.7}, broken=("--a",)), wanted("--a", "--b"))
    assert candidates(state) == ["did not start", "kept"]
    assert "ValueError: no" in state.rows[1].why


def test_it_stops_when_nothing_gains_any_more() -> None:
    engine = Simulated({})
    state = tuned(engine, wanted("--a", "--b", "--c", "--d", "--e"))
    assert outcomes(state) == ["as found", "no gain", "no gain", "no gain", "not tried", "not tried"]
    assert "the last 3 steps gained nothing" in state.rows[-1].why
    assert state.ended == "finished"


MANY = wanted(*(f"--{letter}" for letter in "abcdefghijklmnop"))


@pytest.mark.parametrize(
    ("budget_min", "starts", "chosen"),
    [
        (15, 1, ()),  # a winner could not be held against anything
        (35, 3, ()),  # one was kept, and the budget is too short to confirm it
        (85, 7, ()),  # a short one goes into the search
        (125, 12, ("--a", "--c", "--e")),  # a long one keeps some for confirming
    ],
)
def test_it_stays_within_its_budget_and_a_long_one_lasts_for_confirming(
    budget_min: float, starts: int, chosen: tuple[str, ...]
) -> None:
    engine = Simulated({"--a": 0.7, "--c": 0.8, "--e": 0.8}, minutes_each=10)
    state = tuned(engine, MANY, budget_min)
    assert len(engine.starts) == starts
    assert engine.now <= budget_min * 60
    assert state.ended == "out of budget"
    assert (state.settings() != Settings()) == (starts > 1)
    assert (state.chosen.added, state.is_open) == (chosen, not chosen and starts > 1)
    assert "budget of" in next(row.why for row in state.rows if row.outcome == "not tried")


def test_what_is_skipped_is_a_row_with_its_reason() -> None:
    none = Candidate(step="s", skipped="no GPU answers")
    state = tuned(Simulated({}), [none])
    assert [(row.outcome, row.why) for row in state.rows[1:]] == [("skipped", "no GPU answers")]


def test_there_must_be_something_to_resume() -> None:
    with pytest.raises(UsageError, match="nothing to resume"):
        kept.load("that")
    kept.file_of("that").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        kept.load("that")


def test_an_engine_as_found_that_was_stopped_leaves_nothing() -> None:
    def stopped(_where: str, _settings: Settings, /) -> None:
        return None

    assert first(replace(run_of(Simulated({})), measured=stopped), "that") is None
    assert not kept.file_of("that").exists()
