"""The knee of simulated servers of each kind, with noise: within one rung, by the right cause; none where none is."""

import math
import os
import random
from dataclasses import dataclass, replace

import msgspec
import pytest

from lpxdoctor.decode.knee import knee
from lpxdoctor.decode.limits import Cause
from lpxdoctor.decode.profile import Knee
from tests.decode.simulated import KV_MS_PER_TOKEN, WEIGHTS_MS, Server, climbed

LADDER = (1, 2, 4, 8, 16, 32, 64, 128)
SEEDS = range(int(os.environ.get("KNEE_SEEDS", "12")))
ONE_STREAM_MS = 1.0 + WEIGHTS_MS / 0.85  # what a step takes however many are decoded


@dataclass(frozen=True)
class Case:
    """A server, and at how many at once its knee really is; 0: nowhere on the ladder."""

    server: Server
    truth: float
    cause: Cause


def case(cause: Cause, seed: int) -> Case:
    """Draw a server whose limit, and only that, lies at a concurrency of its own."""
    chance = random.Random(f"{cause}{seed}")
    at = 2 ** chance.uniform(2.2, 5.0)
    # Where a step takes twice as long as that of one stream, throughput and latency begin to grow alike.
    growth_ms = ONE_STREAM_MS / at
    servers = {
        Cause.BANDWIDTH: Server(prompt=round((growth_ms - 0.004) * 0.85 / KV_MS_PER_TOKEN), per_sequence_ms=0.004),
        Cause.COMPUTE: Server(per_sequence_ms=growth_ms - 64 * KV_MS_PER_TOKEN / 0.85),
        Cause.MAX_NUM_SEQS: Server(max_num_seqs=round(at)),
        # Requests are let in by their prompts and grow, so some must go again: between prompt and full length.
        Cause.KV_CACHE: Server(kv_tokens=round(at * (64 + 48 / 2)), output=48),
        Cause.CLIENT: Server(client_up_to=round(at)),
        Cause.FRONT_END: Server(output=16, send_ms=ONE_STREAM_MS / 2 ** chance.uniform(0.3, 2.0), merges=seed % 2 == 0),
        Cause.NONE: Server(),
    }
    if cause is Cause.FRONT_END:  # bunches of requests form, for which there is no formula: the same without noise
        still = climbed(replace(servers[cause], step_noise=0.0, run_noise=0.0), LADDER, seed, ceiling=False)
        at = max(still, key=lambda rung: (rung.output_tokens_per_s or 0) ** 2 / rung.concurrency).concurrency
    return Case(servers[cause], 0.0 if cause is Cause.NONE else at, cause)


def within_one_rung(found: Knee, truth: float) -> bool:
    if found.concurrency is None or not truth:
        return found.concurrency is None and not truth
    return abs(math.log2(found.concurrency / truth)) <= 1


KINDS = [cause for cause in Cause if cause is not Cause.STEP]


@pytest.mark.parametrize("cause", KINDS, ids=lambda cause: cause.value)
def test_the_knee_and_its_cause_are_found_despite_noise(cause: Cause) -> None:
    """Of each kind's noisy ladders 95 % must be right in both; of the few that the suite has time for, all but one."""
    cases = [(case(cause, seed), seed) for seed in SEEDS]
    found = [(one, knee(climbed(one.server, LADDER, seed))) for one, seed in cases]
    wrong = [
        (one.truth, seen)
        for one, seen in found
        if seen.cause != one.cause.value or not within_one_rung(seen, one.truth)
    ]
    assert len(wrong) <= max(1, 0.05 * len(cases)), wrong


@pytest.mark.parametrize("cause", [Cause.BANDWIDTH, Cause.COMPUTE])
def test_without_the_models_config_memory_and_arithmetic_are_not_told_apart(cause: Cause) -> None:
    one = case(cause, 3)
    seen = knee(climbed(one.server, LADDER, 3, ceiling=False))
    assert within_one_rung(seen, one.truth)
    assert (seen.cause, seen.confidence) == (Cause.STEP.value, "low")
    assert any("--model-config" in line for line in seen.evidence)


def test_a_queue_is_seen_without_gauges_and_not_called_certain() -> None:
    one = case(Cause.MAX_NUM_SEQS, 1)
    seen = knee(climbed(replace(one.server, has_gauges=False), LADDER, 1))
    assert within_one_rung(seen, one.truth)
    assert (seen.cause, seen.confidence, seen.engine_limit) == (Cause.MAX_NUM_SEQS.value, "low", None)


def test_the_engines_limit_is_told_exactly() -> None:
    seen = knee(climbed(Server(max_num_seqs=13), LADDER, 1))
    assert (seen.concurrency, seen.engine_limit, seen.confidence) == (8, 13, "high")
    assert "13 at once" in seen.evidence[0]


def test_a_limit_of_the_engine_does_not_hide_a_knee_before_it() -> None:
    slow = Server(per_sequence_ms=ONE_STREAM_MS / 8, max_num_seqs=100)
    seen = knee(climbed(slow, LADDER, 1))
    assert (seen.cause, seen.concurrency) == (Cause.COMPUTE.value, 8)


def test_a_limit_that_the_first_rung_meets_is_the_answer_itself() -> None:
    seen = knee(climbed(Server(max_num_seqs=5), (16, 32), 1))
    assert (seen.cause, seen.concurrency) == (Cause.MAX_NUM_SEQS.value, 5)


def test_rungs_that_cannot_be_compared_are_left_out() -> None:
    rungs = climbed(Server(), LADDER, 1)
    throttled = msgspec.structs.replace(rungs[3], valid=False, invalid_because="GPU 0", output_tokens_per_s=9e9)
    assert knee((*rungs[:3], throttled, *rungs[4:])).cause == Cause.NONE.value
    assert knee(()).concurrency is None
    assert knee(rungs[:1]).evidence == ("fewer than two rungs can be compared",)
