"""How candidates are measured: long enough by what the engine as found did, and longer where it varied too much."""

import math
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from lpxdoctor import policy
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.measure import Plan, usual_requests
from lpxdoctor.decode.profile import Rung
from lpxdoctor.tune.accuracy import Prompts
from lpxdoctor.tune.command import command
from lpxdoctor.tune.measuring import Measuring, again, enough, errors, too_short, with_newer
from lpxdoctor.tune.service import Settings
from tests.decode.peer import serving_apart
from tests.decode.script import Script
from tests.decode.servers import Server, measured
from tests.tune.test_command import RECIPE


def plan(requests: int | None = None, output_len: int = 8, *concurrencies: int) -> Plan:
    return Plan(
        concurrencies=concurrencies or (1, 32),
        requests=requests,
        input_len=8,
        output_len=output_len,
        timeout_s=10,
        command=(),
    )


def test_a_fast_engine_gets_as_many_requests_as_take_15_seconds() -> None:
    found = measured(Server(request=0.02, concurrencies=(1, 32)), 1)
    rates = {rung.concurrency: rung.output_tokens_per_s or 0.0 for rung in found.rungs}
    counts = enough(plan(None, 8), found)
    assert counts == {one: max(16 if one == 1 else 128, -(-rates[one] * 15 // 8)) for one in (1, 32)}
    assert usual_requests(plan(None), 32) == 128
    assert usual_requests(plan(7), 32) == 7


@dataclass
class Told:
    rungs: list[Rung] = field(default_factory=list[Rung])

    def __call__(self, rung: Rung) -> None:
        self.rungs.append(rung)


def measuring_of(told: Told, requests: int | None, noise: float) -> Measuring:
    return Measuring(
        service=command(RECIPE, 10),
        plan=plan(requests, 8, 1),
        prompts=Prompts(1, ("one",)),
        key_file=None,
        hooks=Hooks(),
        on_rung=told,
        noise=noise,
    )


@pytest.mark.parametrize("requests", [5, None])
def test_what_the_first_took_is_what_all_get(requests: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.tune.measuring._LEAST_S", 1)  # more than 16 requests take on a busy machine
    told = Told()
    measuring = measuring_of(told, requests, noise=math.inf)
    with serving_apart(Script(ttft_s=0.001, gap_s=0.001)) as url:
        first, second = measuring(url, Settings()), measuring(url, Settings())
    assert first is not None
    assert second is not None
    seen = [rung.requests for rung in told.rungs]
    if requests:
        assert set(seen) == {5}
    else:
        assert seen[0] == 16 < seen[1]
        assert set(seen[1:]) == {seen[1]}
    assert first[0].rungs[0].requests == second[0].rungs[0].requests == seen[-1]


def test_what_varied_too_much_is_measured_four_times_as_long_and_nothing_else() -> None:
    settled = replace(plan(None), requests={1: 16, 32: 128})
    quiet, busy = (measured(Server(spells=by, memory=16, concurrencies=(1, 32)), 1) for by in (0.001, 0.2))
    longer = again(settled, busy, 0.01)
    assert longer is not None
    assert (longer.concurrencies, longer.requests) == ((1, 32), {1: 64, 32: 512})
    mixed = msgspec.structs.replace(quiet, rungs=(quiet.rungs[0], busy.rungs[1]))
    only = again(settled, mixed, 0.01)
    assert only is not None
    assert (only.concurrencies, only.requests) == ((32,), {1: 16, 32: 512})
    assert again(settled, quiet, 0.01) is None
    assert again(plan(5), busy, 0.01) is None  # as many as were typed


def test_what_was_disturbed_is_measured_once_more_as_it_was() -> None:
    settled = replace(plan(None), requests={1: 16, 32: 128})
    found = measured(Server(spells=0.001, concurrencies=(1, 32)), 1)
    rungs = tuple(msgspec.structs.replace(rung, valid=False, invalid_because="shared") for rung in found.rungs)
    assert again(settled, msgspec.structs.replace(found, rungs=rungs), 0.01) == settled
    one = again(settled, msgspec.structs.replace(found, rungs=(found.rungs[0], rungs[1])), 0.01)
    assert one == replace(settled, concurrencies=(32,))
    assert again(plan(5), msgspec.structs.replace(found, rungs=rungs), 0.01) == plan(5)


def test_what_was_too_short_is_measured_again_and_takes_the_place_of_it() -> None:
    usual = plan(None)
    settled = replace(usual, requests={1: 16, 32: 345})
    assert too_short(usual, settled) == replace(settled, concurrencies=(32,))
    assert too_short(usual, replace(usual, requests={1: 16, 32: 128})) is None
    older, newer = (measured(Server(concurrencies=(1, 32)), seed) for seed in (1, 2))
    whole = with_newer(older, msgspec.structs.replace(newer, rungs=newer.rungs[1:]))
    assert whole.rungs == (older.rungs[0], newer.rungs[1])
    assert (whole.started, whole.ended) == (older.started, newer.ended)


def test_the_one_after_a_longer_one_is_as_long_as_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.tune.measuring._LEAST_S", 0.4)
    told = Told()
    measuring = measuring_of(told, None, noise=0.0)
    with serving_apart(Script(ttft_s=0.001, gap_s=0.001)) as url:
        measuring(url, Settings())
        measuring(url, Settings())
    _, first, longer, second, longest = told.rungs
    assert second.requests == first.requests
    assert longer.requests == (4 if first.valid else 1) * first.requests
    assert longest.requests == (4 if second.valid else 1) * second.requests


def worst(server: Server, seed: int) -> float:
    return max(errors(measured(server, seed)).values())


def test_spells_are_told_from_a_quiet_machine_and_a_longer_run_from_a_short_one() -> None:
    noise = policy.load().compare.noise["tokens_per_s"]
    quiet = [worst(Server(spells=0.01, memory=2), seed) for seed in range(20)]
    busy = [worst(Server(spells=0.08, memory=16), seed) for seed in range(20)]
    assert max(quiet) <= noise
    assert sorted(busy)[2] > noise
