"""A rung says itself when it cannot be compared, and why."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lpxdoctor.decode.profile import EngineDelta, GpuUse, Rung
from lpxdoctor.decode.samples import Recording, Role
from lpxdoctor.decode.validity import judge
from tests.decode.recordings import MS, ON_TIME, recording, sample, steady

QUIET = EngineDelta(
    generation_tokens=200.0,
    received_tokens=200,
    prefix_cache_hit_rate=0.0,
    preemptions=0.0,
    ttft_mean_ms=None,
    inter_token_mean_ms=None,
)
GPU = GpuUse(
    index=3,
    name="NVIDIA H200",
    samples=10,
    utilization_mean=97.0,
    sm_clock_mhz=(1980, 1980),
    memory_clock_mhz=(3201, 3201),
    temperature_max_c=60,
    power_max_w=600.0,
    memory_mib=(100_000, 100_010),
    slowed_share={},
    process_groups=1,
)


def judged(rung: Recording, engine: EngineDelta | None = QUIET, gpu: GpuUse = GPU, **changes: Any) -> Rung:
    surroundings: dict[str, Any] = {"kv_cache_tokens": 4096, "block_size": 16, "input_len": 8, **changes}
    return judge(rung, engine=engine, gpus=(gpu,), **surroundings)


def test_a_quiet_rung_is_valid_and_has_nothing_to_say() -> None:
    rung = judged(recording(steady()))
    assert (rung.valid, rung.invalid_because, rung.notes) == (True, None, ())
    assert (rung.requests, rung.errors, rung.errors_by_kind) == (20, 0, {})
    assert rung.kv_cache_share == pytest.approx(2 * 16 / 4096)


def test_errors_are_counted_by_kind_with_an_example() -> None:
    bad = [
        sample(0, [], failure="http-503: busy"),
        sample(0, [], failure="http-503: later"),
        sample(1, [9], failure="cut: x"),
    ]
    rung = judged(recording([*steady(), *bad]))
    assert (rung.requests, rung.errors) == (20, 3)
    assert rung.errors_by_kind == {"http-503": 2, "cut": 1}
    assert rung.error_examples["http-503"] == "http-503: busy"
    assert rung.invalid_because == "3 of 23 requests failed (http-503 2, cut 1): the numbers are those of the others"


@pytest.mark.parametrize(
    ("rung", "reason"),
    [
        (recording(steady(), stopped="interrupted"), "ended early: interrupted"),
        (recording(steady(), client=replace(ON_TIME, idle_ns=100 * MS)), "client-limited: 10% of the time"),
        (
            recording(steady(), client=replace(ON_TIME, cpu_ns=900 * MS)),
            "client-limited: the client used 90% of a core",
        ),
        (recording(steady(), client=replace(ON_TIME, clock_step_ns=5 * MS)), "wall clock was set meanwhile"),
        (recording(steady(), concurrency=2), "no time in which all requests were under way"),
    ],
)
def test_what_the_client_did_makes_a_rung_invalid(rung: Recording, reason: str) -> None:
    seen = judged(rung)
    assert not seen.valid
    assert reason in (seen.invalid_because or "")


def test_a_late_client_is_named_with_its_bound() -> None:
    late = replace(ON_TIME, sends_ns=ON_TIME.sends_ns.__class__("q", [4 * MS] * 10))
    seen = judged(recording(steady(), client=late))
    assert "client-limited" in (seen.invalid_because or "")
    assert "ttft by 4.00 ms" in (seen.invalid_because or "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prefix_cache_hit_rate": 0.01}, "1.0% of the prompt tokens came from the prefix cache"),
        ({"generation_tokens": 260.0}, "the engine served others at the same time (60 tokens that are not ours)"),
    ],
)
def test_what_the_engine_counted_makes_a_rung_invalid(change: dict[str, Any], reason: str) -> None:
    assert judged(recording(steady()), msgspec.structs.replace(QUIET, **change)).invalid_because == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"slowed_share": {"temperature, by the hardware": 0.25}},
            "GPU 3 was slowed down (temperature, by the hardware) in 25% of the samples",
        ),
        ({"xids": (31, 63, 31)}, "GPU 3 reported Xid 31, 63"),
        ({"process_groups": 2}, "GPU 3 was shared: 2 unrelated groups of processes have memory on it"),
    ],
)
def test_what_happened_to_a_gpu_makes_a_rung_invalid(change: dict[str, Any], reason: str) -> None:
    assert judged(recording(steady()), gpu=msgspec.structs.replace(GPU, **change)).invalid_because == reason


def test_a_gpu_that_stopped_answering_is_not_taken_for_a_quiet_one() -> None:
    rung = judged(recording(steady()), gpus_unread="NVML said nothing in the last 12 s")
    assert rung.invalid_because == "the GPUs could not be read to the end: NVML said nothing in the last 12 s"


@pytest.mark.parametrize("input_len", [8, None])
def test_a_rung_without_any_answer_is_told_like_any_other(input_len: int | None) -> None:
    rung = judged(recording([sample(0, [], failure="http-500: x") for _ in range(4)]), input_len=input_len)
    assert (rung.requests, rung.errors, rung.valid) == (0, 4, False)
    assert (rung.ttft_ms.p50, rung.prompt_tokens, rung.notes) == (None, None, ())


def test_an_engine_without_counters_is_no_reason() -> None:
    assert judged(recording(steady()), None).valid


def test_oddities_are_noted_and_the_rung_stays_valid() -> None:
    odd = [
        *(replace(one, tokens=9, prompt_tokens=9, arrivals_ns=one.arrivals_ns[:9]) for one in steady()),
        sample(0, [], role=Role.WARM_UP, failure="connect: refused"),
    ]
    shared = msgspec.structs.replace(GPU, memory_mib=(1000, 1200))
    seen = judged(recording(odd), msgspec.structs.replace(QUIET, preemptions=4.0), shared)
    assert seen.valid
    said = "\n".join(seen.notes)
    assert "20 of 20 answers have fewer than 10 tokens: the server ended them" in said
    assert "the server counted 9.0 tokens in prompts of 8 token ids" in said
    assert "preempted 4 requests" in said
    assert "1 requests that do not count failed too (connect: refused)" in said
    assert "grew from 1000 to 1200 MiB" in said


def test_several_tokens_a_chunk_and_missing_counts_are_noted() -> None:
    chunky = [replace(one, tokens=40, first_tokens_known=False) for one in steady()]
    said = "\n".join(judged(recording(chunky)).notes)
    assert "4.00 tokens per chunk: ITL is per chunk" in said
    assert "one is assumed" in said
    untold = [replace(one, tokens_known=False, prompt_tokens=None) for one in steady()]
    said = "\n".join(judged(recording(untold)).notes)
    assert "sends no token counts" in said
    assert "does not tell how many tokens a prompt had" in said
    text = "\n".join(judged(recording(steady()), input_len=None).notes)
    assert "text prompts of 8 tokens on average" in text
