"""A run that ended early goes on where it was: out of budget, interrupted, killed, or with the machine started anew."""

import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.resume import boot_id, taken_up
from lpxdoctor.tune.search import descend, first
from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.state import State
from tests.tune.test_command import ENGINE, ended
from tests.tune.test_search import Simulated, candidates, outcomes, run_of, tuned, wanted

GAINS = {"--a": 0.7, "--c": 0.8}
ALL = wanted("--a", "--b", "--c")


def on(engine: Simulated, budget_min: float = 600) -> State:
    """Go on with the run that is kept, as another process does."""
    return descend(run_of(engine, budget_min), kept.load("this"), ALL)


def test_a_run_out_of_budget_goes_on_with_a_larger_one() -> None:
    engine = Simulated(GAINS, minutes_each=10)
    begun = tuned(engine, ALL, budget_min=35)
    assert (begun.ended, candidates(begun)) == ("out of budget", ["kept", "not tried", "not tried"])
    engine = replace(engine, starts=[], now=0.0)
    state = on(engine)
    assert candidates(state) == ["kept", "no gain", "kept"]
    assert engine.starts == [("--a", "--b"), ("--a", "--c"), ("--a",), (), ("--a", "--c"), ()]
    assert (state.ended, state.chosen.added) == ("finished", ("--a", "--c"))
    with pytest.raises(UsageError, match="was finished"):
        kept.load("this")


def test_a_budget_that_lasts_for_nothing_leaves_it_as_it_was() -> None:
    engine = Simulated(GAINS, minutes_each=10)
    begun = tuned(engine, ALL, budget_min=35)
    state = on(replace(engine, starts=[], now=0.0), budget_min=1)
    assert (outcomes(state), state.settings(), state.ended) == (outcomes(begun), begun.settings(), "out of budget")
    least, most = (seconds / 60 for seconds in state.lasts_s)
    engine = replace(engine, starts=[], now=0.0)
    assert len(candidates(on(engine, budget_min=least))) == 3
    assert engine.starts
    assert on(replace(engine, starts=[], now=0.0), budget_min=most).ended == "finished"


def test_only_the_confirmation_is_left_to_do() -> None:
    engine = Simulated({"--a": 0.7}, minutes_each=10)
    begun = tuned(engine, wanted("--a"), budget_min=35)
    assert (begun.ended, begun.is_open) == ("out of budget", True)
    engine = replace(engine, starts=[], now=0.0)
    state = descend(run_of(engine), kept.load("this"), wanted("--a"))
    assert (engine.starts, state.chosen.added) == ([(), ("--a",), ()], ("--a",))


def test_an_interrupted_run_goes_on_where_it_was() -> None:
    engine = Simulated(GAINS, stops_at="--b")
    state = tuned(engine, ALL)
    assert (outcomes(state), state.ended) == (["as found", "kept", "measured again"], "")
    engine = replace(engine, stops_at="", starts=[])
    state = on(engine)
    assert candidates(state) == ["kept", "no gain", "kept"]
    assert engine.starts[:2] == [("--a", "--b"), ("--a", "--c")]


def test_an_interruption_while_a_winner_is_confirmed_is_one() -> None:
    """Ctrl-C comes in each of the starts; whenever it does, the run can go on and comes to the same."""
    whole, few = Simulated(GAINS), wanted("--a")
    state = tuned(whole, few)
    for count in range(2, len(whole.starts)):
        engine = Simulated(GAINS, stops_after=count)
        assert tuned(engine, few).ended == ""
        again = descend(run_of(replace(engine, stops_after=0, starts=[])), kept.load("this"), few)
        assert (again.chosen, again.ended, candidates(again)) == (state.chosen, "finished", candidates(state))


class Killed(BaseException):
    """What a process is that was killed: nothing after it is done."""


def test_a_run_that_was_killed_in_the_middle_of_a_candidate_tries_it_again() -> None:
    engine = Simulated(GAINS)

    def killed(where: str, settings: Settings, /) -> None:
        if "--b" in settings.added:
            raise Killed
        return engine.measure(where, settings)  # type: ignore[return-value]

    run = replace(run_of(engine), measured=killed)
    begun = first(run, "this")
    assert begun is not None
    with pytest.raises(Killed):
        descend(run, begun, ALL)
    engine = replace(engine, starts=[])
    assert candidates(on(engine)) == ["kept", "no gain", "kept"]
    assert engine.starts[0] == ("--a", "--b")


def test_other_numbers_are_another_run() -> None:
    tuned(Simulated(GAINS, minutes_each=10), ALL, budget_min=35)
    with pytest.raises(UsageError, match="nothing to resume"):
        kept.load("that")


def begun(engine: Simulated) -> State:
    tuned(engine, ALL, budget_min=35)
    state = kept.load("this")
    now = datetime.now(timezone.utc).isoformat()
    return msgspec.structs.replace(state, boot="one", best=msgspec.structs.replace(state.best, ended=now))


def test_after_a_restart_what_is_best_is_measured_again_first() -> None:
    engine = Simulated(GAINS, minutes_each=10)
    state = begun(engine)
    slower = replace(engine, starts=[], now=0.0, machine=lambda _minute: 1.5)
    assert taken_up(run_of(slower), state, "one") is state
    assert slower.starts == []
    again = taken_up(run_of(slower), state, "two")
    assert again is not None
    assert (slower.starts, again.rows[-1].outcome, again.boot) == ([("--a",)], "measured again", "two")
    # Held against how it was before, --c would not gain: 1.5 x 0.8 > 1.
    assert candidates(descend(run_of(slower, 600), again, ALL)) == ["kept", "no gain", "kept"]
    assert taken_up(run_of(slower, 1), state, "two") is state  # for which the budget is too short
    later = datetime.now(timezone.utc) + timedelta(hours=2)
    assert len(slower.starts) > 1
    assert taken_up(run_of(slower, 6000), state, "one", later) is not state


def test_another_driver_after_the_restart_is_another_set_up() -> None:
    engine = Simulated(GAINS, minutes_each=10)
    state = begun(engine)
    other = msgspec.structs.replace(state, best=msgspec.structs.replace(state.best, driver="570.1"))

    def measure(where: str, settings: Settings, /) -> object:
        profile, answers = engine.measure(where, settings)
        return msgspec.structs.replace(profile, driver="580.1"), answers

    run = replace(run_of(engine), measured=measure)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"driver  570\.1 -> 580\.1"):
        taken_up(run, other, "two")


def test_the_machine_tells_its_start() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


OWNER = """
import sys
from lpxdoctor.tune.command import command
from lpxdoctor.tune.service import Settings
with command(sys.argv[1], 60).running(Settings(), lambda: False):
    print("up", flush=True)
    sys.stdin.read()
"""


def test_the_engine_of_a_run_that_is_killed_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    recipe = f"{sys.executable} {ENGINE} --note {note} --port {{port}} {{arguments}}"
    with subprocess.Popen(
        (sys.executable, "-c", OWNER, recipe), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        owner.kill()
    assert ended(note.read_text())
