"""A ladder ends where more would tell nothing, and says why; its command line takes and refuses what it should."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor import policy
from lpxdoctor.cli import run
from lpxdoctor.decode import measure
from lpxdoctor.decode.ladder import doubling, memory_notes, stop_reason
from lpxdoctor.decode.limits import Cause, limit
from lpxdoctor.decode.profile import EngineLoad, Rung
from tests.decode.peer import serving, serving_apart
from tests.decode.recordings import recording, sample, steady
from tests.decode.script import Script
from tests.decode.simulated import Server, measured
from tests.decode.test_validity import GPU, QUIET, judged

LIMITS = policy.load().ladder


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")


def simulated(server: Server, *concurrencies: int) -> list[Rung]:
    chance = random.Random(1)
    return [measured(server, concurrency, chance) for concurrency in concurrencies]


def test_a_ladder_without_numbers_doubles() -> None:
    assert doubling(100) == (1, 2, 4, 8, 16, 32, 64)
    assert doubling(128)[-1] == 128


def test_nothing_ends_a_ladder_that_still_climbs() -> None:
    assert stop_reason(simulated(Server(), 1, 32), LIMITS) == ""


def test_the_engines_limit_ends_a_ladder() -> None:
    server = Server(max_num_seqs=12)
    assert stop_reason(simulated(server, 1, 8), LIMITS) == ""
    said = stop_reason(simulated(server, 1, 16), LIMITS)
    assert said.startswith("cap: max_num_seqs reached at 16 at once: the engine ran 12 at once and 4 waited")


def test_a_full_kv_cache_ends_a_ladder() -> None:
    said = stop_reason(simulated(Server(kv_tokens=1200, output=48), 1, 32), LIMITS)
    assert said.startswith("cap: KV cache full at 32 at once")


def test_long_answers_end_a_ladder() -> None:
    said = stop_reason(simulated(Server(per_sequence_ms=1.0, has_gauges=False), 1, 8, 64), LIMITS)
    assert "latency: an answer took" in said
    assert said.endswith("times as long at 64 at once as at 1")


def test_errors_end_a_ladder_from_the_share_of_the_policy_on() -> None:
    one_bad = judged(recording([*steady(20), sample(0, [], failure="cut: x")]))
    assert stop_reason([one_bad], LIMITS) == ""
    two_bad = judged(recording([*steady(20), *(sample(0, [], failure="cut: x") for _ in range(2))]))
    assert stop_reason([two_bad], LIMITS) == "errors: 2 of 22 requests failed at 1 at once (cut 2)"


def loaded(**changes: Any) -> Rung:
    """Return a rung at 32 at once of which the engine ran 20 and the KV cache was half full."""
    values: dict[str, Any] = {
        "samples": 10, "running_p50": 20.0, "running_max": 20.0, "waiting_p50": 12.0, "waiting_share": 1.0,
        "kv_cache_p50": 0.5, "kv_cache_max": 0.6, **changes,
    }  # fmt: skip
    return msgspec.structs.replace(
        judged(recording(steady())), concurrency=32, output_tokens=128.0, kv_cache_share=0.8, load=EngineLoad(**values)
    )


def test_what_holds_requests_back_is_told_by_the_engines_gauges() -> None:
    found = limit(loaded())
    assert found is not None
    assert (found.cause, found.running) == (Cause.MAX_NUM_SEQS, 20)
    full = limit(loaded(kv_cache_p50=0.98))
    assert full is not None
    assert full.cause is Cause.KV_CACHE


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 2},  # a glance is no proof
        {"waiting_p50": 0.0},
        {"waiting_share": 0.5},
        {"running_p50": 14.0},  # no fixed number: they wait for their prompts' turn
        {"running_max": 32.0, "running_p50": 32.0},
    ],
)
def test_requests_that_wait_now_and_then_are_no_limit(change: dict[str, Any]) -> None:
    assert limit(loaded(**change)) is None


def test_preemption_is_a_full_kv_cache() -> None:
    many = msgspec.structs.replace(QUIET, preemptions=3.0)
    found = limit(msgspec.structs.replace(loaded(), engine=many))
    assert found is not None
    assert found.cause is Cause.KV_CACHE
    assert "60% of it in use: 3 requests preempted" in found.seen
    silent = limit(msgspec.structs.replace(loaded(), engine=many, load=None))
    assert silent is not None
    assert silent.running is None


def test_a_rung_lasts_long_enough_for_the_engines_gauges_to_be_told() -> None:
    ladder = plan(stops=LIMITS)
    eight = msgspec.structs.replace(judged(recording(steady())), concurrency=8, requests_per_s=20.0)
    assert measure.requests_after(ladder, 16, None) == 64
    assert measure.requests_after(ladder, 16, eight) == 5 * 2 * 20  # twice as fast, were nothing in the way
    assert measure.requests_after(ladder, 10, eight) == 5 * 25
    assert measure.requests_after(ladder, 800, eight) == 3200
    assert measure.requests_after(ladder, 32, msgspec.structs.replace(eight, requests_per_s=None)) == 128
    assert measure.requests_after(plan(stops=LIMITS, requests=7), 16, eight) == 7
    assert measure.requests_after(plan(), 16, eight) == 64


def plan(**changes: Any) -> measure.Plan:
    values: dict[str, Any] = {"requests": None, **changes}
    return measure.Plan(concurrencies=(8, 16), input_len=24, output_len=6, timeout_s=10, command=(), **values)


def test_memory_that_grew_over_the_run_is_noted() -> None:
    def rung(*memory: tuple[int, int]) -> Rung:
        gpus = tuple(msgspec.structs.replace(GPU, index=n, memory_mib=pair) for n, pair in enumerate(memory))
        return msgspec.structs.replace(judged(recording(steady())), gpus=gpus)

    slowly = [rung((1000, 1004), (500, 500)), rung((1004, 1008), (500, 500)), rung((1008, 1012), (500, 504))]
    assert list(memory_notes(slowly, LIMITS)) == ["memory of GPU 0 grew from 1000 to 1012 MiB over the run"]
    assert not list(memory_notes(slowly[:1], LIMITS))


SHORT = ("--requests", "6", "--input-len", "24", "--output-len", "6")


def climbed(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> tuple[int, dict[str, Any]]:
    status = run(["baseline", url, *SHORT, "--format", "json", *options])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return status, answer


def test_a_ladder_that_meets_errors_keeps_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    # Two warm-ups, then a rung at 1 and one at 2; the third fails.
    with serving(Script(ttft_s=0.05, fault="http-503", fault_on=tuple(range(24, 999)))) as peer:
        status, answer = climbed(capsys, peer.url, "--ladder", "1,2,4,8,16")
    assert status == 1
    assert answer["ladder"]["asked"] == [1, 2, 4, 8, 16]
    assert "errors: " in answer["ladder"]["stopped"]
    assert answer["rungs"][-1]["errors"] > 0
    assert len(answer["rungs"]) < 5
    assert answer["knee"]["cause"] in {cause.value for cause in Cause}


def test_a_ladder_without_numbers_climbs_by_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpxdoctor.cli.baseline.MOST_AT_ONCE", 4)
    with serving_apart(Script(ttft_s=0.05)) as url:  # far from ten times as long, which would end it
        _, answer = climbed(capsys, url, "--ladder")
    assert [rung["concurrency"] for rung in answer["rungs"]] == [1, 2, 4]
    assert answer["ladder"] == {"asked": [1, 2, 4], "stopped": ""}
    assert "config was not found here" in answer["unknown"]["ceiling"]


def test_exactly_the_concurrencies_named_are_no_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script()) as peer:
        _, answer = climbed(capsys, peer.url, "--concurrency", "3,1")
    assert [rung["concurrency"] for rung in answer["rungs"]] == [3, 1]
    assert (answer["ladder"], answer["knee"], answer["slo"]) == (None, None, None)


def test_open_files_bound_a_ladder_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 1000))
    assert measure.most_at_once() == 1000 - 64


def test_a_missed_target_ends_with_2_and_a_held_one_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_apart(Script(ttft_s=0.03)) as url:
        status, answer = climbed(capsys, url, "--concurrency", "1,2", "--slo", "ttft=1ms")
        assert status == 2
        assert answer["slo"]["concurrency"] is None
        run(["baseline", "--from", "last", "--slo", "ttft=1ms"])
        assert "No line holds the target: p95 of ttft within 1 ms" in capsys.readouterr().out
        _, answer = climbed(capsys, url, "--concurrency", "1,2", "--slo", "ttft=5s")
    # Six requests prove nothing, and a rung that was too slow to measure holds nothing.
    assert not answer["slo"]["confident"]
    held = [rung["concurrency"] for rung in answer["rungs"] if rung["valid"]]
    assert answer["slo"]["concurrency"] == max(held, default=None)


def test_a_target_needs_more_requests_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(ttft_s=0.001, gap_s=0.0005)) as peer:
        argv = ["baseline", peer.url, "--concurrency", "2", "--output-len", "4", "--slo", "tpot=1s"]
        run([*argv, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["rungs"][0]["requests"] == 60


def test_a_kept_profile_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.json"
    with serving(Script()) as peer:
        status = run(["baseline", peer.url, *SHORT, "--ladder", "1,2,3", "-o", str(file)])
    shown = capsys.readouterr().out.replace(f"\nSaved as baseline {json.loads(file.read_text())['id']}: {file}\n", "\n")
    assert run(["baseline", "--from", str(file)]) == status
    assert capsys.readouterr().out == shown
    assert run(["baseline", "--from", str(file), "--format", "html"]) == status
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ladder", "4,2"), "rising"),
        (("--ladder", "1,1"), "rising"),
        (("--ladder", "http://x"), "--ladder stands last"),
        (("--ladder", "1,2", "--concurrency", "1"), "type one of them"),
        (("--slo", "tpot=fast"), "write --slo tpot=20ms"),
        (("--model-config", "/no/such/model"), "no such file"),
        (("--from", "last"), "takes only --slo and --format"),
    ],
)
def test_wrong_use_is_explained(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script()) as peer:
        assert run(["baseline", peer.url, *SHORT, *options]) == 64
        assert not peer.seen
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in " ".join(captured.err.split())


@pytest.mark.parametrize("argv", [[], ["--ladder"], ["--from", "/no/such/profile"], ["--from", "abcdef"]])
def test_without_a_target_nothing_is_measured(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", *argv]) == 64
    assert capsys.readouterr().out == ""
