"""The front end is named where the engine's own counters prove it, on one H200 too, and nowhere else."""

from pathlib import Path

import msgspec
import pytest

from lpxdoctor import policy
from lpxdoctor.decode.front_end import late
from lpxdoctor.decode.knee import knee
from lpxdoctor.decode.limits import Cause
from lpxdoctor.decode.profile import Knee, Profile, Rung, decode
from lpxdoctor.decode.slo import judged
from lpxdoctor.decode.verdict import concluded
from tests.decode.simulated import Server, climbed
from tests.decode.test_knee import LADDER, ONE_STREAM_MS, case, within_one_rung

# vLLM 0.25.1 with its defaults, a 7.6 B Qwen2 shape: `baseline --ladder 1,2,4,…,256`, without samples.
H200 = Path(__file__).with_name("h200-ladder.json")
PUBLISHED = Path("docs/results/decode-h200-ladder.json")


def profile(file: Path = H200) -> Profile:
    return decode(file.read_bytes(), str(file))


def without_counters(rung: Rung) -> Rung:
    return msgspec.structs.replace(rung, engine=None)


def test_on_an_h200_the_api_process_is_named_with_what_proves_it() -> None:
    found = knee(profile().rungs)
    assert (found.concurrency, found.cause, found.confidence) == (128, "front end", "high")
    assert "the engine made a token of each answer every 9.8 ms, and chunks came every 25.4" in found.evidence[1]
    assert "not the client: this client read 99% of all within 0.7 ms and used 15% of a core" in found.evidence[2]
    assert [line.partition(":")[0] for line in found.advice[:2]] == ["--api-server-count 4", "--stream-interval 4"]


def test_the_published_ladder_names_it_too() -> None:
    published = profile(PUBLISHED)
    found = knee(published.rungs)
    whole = published.rungs[-1].valid
    assert found.cause == ("front end" if whole else "none yet")
    assert any("its API process is late" in line for line in found.evidence)
    assert found.advice


def test_a_target_that_is_missed_says_that_it_is_the_front_ends_doing() -> None:
    found = judged(profile().rungs, {"tpot": 20.0, "ttft": 500.0})
    assert found.concurrency == 64
    because = {rung.concurrency: rung.because for rung in found.rungs}
    assert because[128] == "p95 of ttft is 650.1 ms, over 500; the server's API process is late there, not the engine"
    assert "API process" not in because[64]


@pytest.mark.parametrize("cause", [Cause.BANDWIDTH, Cause.COMPUTE, Cause.MAX_NUM_SEQS, Cause.KV_CACHE, Cause.NONE])
def test_no_other_kind_looks_like_it(cause: Cause) -> None:
    rungs = climbed(case(cause, 2).server, LADDER, 2)
    assert [late(rungs[0], rung) for rung in rungs] == [None] * len(rungs)


def test_several_tokens_a_chunk_by_choice_are_not_late() -> None:
    slow = Server(per_sequence_ms=ONE_STREAM_MS / 8, interval=4)
    rungs = climbed(slow, LADDER, 1)
    assert rungs[0].tokens_per_chunk == pytest.approx(4, abs=0.6)
    found = knee(rungs)
    assert (found.cause, within_one_rung(found, 8)) == (Cause.COMPUTE.value, True)
    assert not any("API process" in line for line in found.evidence)


def test_tokens_that_the_engine_itself_makes_in_bunches_are_not_late() -> None:
    """Speculation that works better at more at once: chunks hold more, and the engine says the same of its outputs."""
    rungs = climbed(case(Cause.COMPUTE, 1).server, LADDER, 1)
    bunched = msgspec.structs.replace(rungs[-1], tokens_per_chunk=3.0)
    assert late(rungs[0], bunched) is None


@pytest.mark.parametrize("merges", [True, False])
def test_without_the_engines_counters_it_is_a_sign_at_most(merges: bool) -> None:
    server = Server(output=16, send_ms=ONE_STREAM_MS / 4, merges=merges)
    counted = climbed(server, LADDER, 1)
    assert knee(counted).confidence == "high"
    blind = tuple(map(without_counters, counted))
    found = knee(blind)
    assert found.confidence != "high"
    assert (found.cause == Cause.FRONT_END.value) == merges


def _knee_by(way: str) -> Knee:
    found = concluded(msgspec.structs.replace(profile(), reached=way), policy.load().ladder, {}).knee
    assert found is not None
    return found


def test_what_lies_between_may_be_the_network() -> None:
    assert not any("the way" in line for line in _knee_by("over loopback").evidence)
    far = _knee_by("through SSH to gpu1")
    assert (far.cause, far.confidence) == ("front end", "medium")
    assert "measured through SSH to gpu1" in far.evidence[-1]
