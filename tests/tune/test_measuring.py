"""How candidates are measured: long enough by what the engine as found did, and as often for each of them."""

from dataclasses import dataclass, field

import pytest

from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.measure import Plan, usual_requests
from lpxdoctor.decode.profile import Rung
from lpxdoctor.tune.accuracy import Prompts
from lpxdoctor.tune.command import command
from lpxdoctor.tune.measuring import Measuring, enough
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


@pytest.mark.parametrize("requests", [5, None])
def test_what_the_first_took_is_what_all_get(requests: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.tune.measuring._LEAST_S", 0.4)
    told = Told()
    measuring = Measuring(
        service=command(RECIPE, 10),
        plan=plan(requests, 8, 1),
        prompts=Prompts(1, ("one",)),
        key_file=None,
        hooks=Hooks(),
        on_rung=told,
    )
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
