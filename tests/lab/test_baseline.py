"""A baseline of the real vLLM CPU engine: sane numbers that agree with the engine's own counters."""

import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import deployments
from lpxdoctor.cli import run
from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.workload import Workload
from lpxdoctor.deployments import Deployment
from tests.lab.hosts import Host
from tests.lab.vllm import MAX_MODEL_LEN, Server

ATTEMPTS = 3  # an engine that other tests starve sends whole answers at once, and long after its clocks stopped
SHORT = ("--concurrency", "1,4", "--requests", "8", "--input-len", "64", "--output-len", "24", "--format", "json")
TOKENS = 240  # so many that a starved engine's bursts, and what passes between two answers, are little beside one


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def record(server: Server, model_dir: Path, ssh: tuple[str, ...] = ()) -> None:
    deployment = Deployment(
        name="vllm-a",
        host="lab",
        url=server.url,
        served_model=server.model,
        api_key_file=None,
        image="sha256:0",
        engine_version="0",
        arguments=("--model", "/model"),
        model_path=str(model_dir),
        ssh=ssh,
        created="2026-11-29T00:00:00+00:00",
    )
    deployments.save(deployment)


def measured(capsys: pytest.CaptureFixture[str], target: str, *options: str) -> dict[str, Any]:
    """Measure and return the answer; a busy machine may make a rung invalid, which is no failure of the measuring."""
    assert run(["baseline", target, *SHORT, *options]) in (0, 1)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def undisturbed(rung: dict[str, Any]) -> bool:
    """Return whether a rung has gaps, the engine's pace, and as many requests at work at a time as it says.

    An engine that other tests starve has not. That many are at work by the rate of their tokens and the time that each
    took. What passes between two requests is in the rate alone; of several some began before the time that the rate is
    of. Speeds of two rungs are not compared, for other tests begin and end meanwhile.
    """
    length_s = (rung["ttft_ms"]["mean"] + (TOKENS - 1) * rung["tpot_ms"]["mean"]) / 1000
    at_once = length_s * rung["output_tokens_per_s"] / TOKENS
    gaps = rung["itl_ms"]["p99"] > 0 and 0 < rung["tpot_ms"]["p50"] < 1000
    # What is late together arrives together, and counts as the first token's time: of the rest only the unit is sure.
    pace = 1 / 30 < rung["tpot_ms"]["mean"] / rung["engine"]["inter_token_mean_ms"] < 3
    most = 1.05 if rung["concurrency"] == 1 else 1.25
    return bool(gaps and pace and 0.6 < at_once / rung["concurrency"] < most)


def test_numbers_agree_with_the_engines_own_counters(vllm_server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    there = endpoint(vllm_server.url)
    answer: dict[str, Any] = {}
    grown = 0.0
    for _ in range(ATTEMPTS):
        before = engine.metrics(there).counters["generation_tokens"]
        answer = measured(capsys, vllm_server.url, "--model", vllm_server.model, "--output-len", f"{TOKENS}")
        grown = engine.metrics(there).counters["generation_tokens"] - before
        if all(map(undisturbed, answer["rungs"])):
            break
    received = [rung["engine"]["received_tokens"] for rung in answer["rungs"]]
    assert [rung["engine"]["generation_tokens"] for rung in answer["rungs"]] == received
    assert grown == sum(received) + 2 * TOKENS  # two warm-up requests
    assert answer["input_exact"]
    assert answer["engine"]["version"].startswith("0.")
    assert answer["engine"]["max_model_len"] == MAX_MODEL_LEN
    for rung in answer["rungs"]:
        assert (rung["requests"], rung["errors"]) == (8, 0)
        assert (rung["prompt_tokens"], rung["output_tokens"]) == (64, TOKENS)
        assert rung["engine"]["prefix_cache_hit_rate"] == 0
        assert 0 < rung["kv_cache_share"] < 1
        assert 0 <= rung["itl_ms"]["p50"] <= rung["itl_ms"]["p99"] <= rung["itl_ms"]["max"]
        # The same unit: no shorter than the engine's own mean, which is over warm-up and cool-down too. How much longer
        # is the load's to say: on two cores the API server sends a first token long after the engine's clock stopped.
        assert rung["ttft_ms"]["mean"] > rung["engine"]["ttft_mean_ms"] / 30
        assert undisturbed(rung)


def test_a_chat_is_measured_and_its_template_stays_out_of_the_prefix_cache(
    vllm_server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = measured(capsys, vllm_server.url, "--endpoint", "chat")
    assert (answer["api"], answer["input_exact"]) == ("/v1/chat/completions", False)
    for rung in answer["rungs"]:
        assert (rung["requests"], rung["errors"], rung["output_tokens"]) == (8, 0, 24)
        assert rung["prompt_tokens"] == pytest.approx(64, rel=0.25)
        assert rung["tokens_per_chunk"] >= 1
        assert rung["engine"]["generation_tokens"] == rung["engine"]["received_tokens"]
        assert rung["engine"]["prefix_cache_hit_rate"] == 0


def test_a_deployment_knows_its_precision_from_its_model(
    vllm_server: Server, model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(vllm_server, model_dir)
    config = json.loads((model_dir / "config.json").read_text())
    answer = measured(capsys, "vllm-a")
    assert answer["precision"] == config.get("dtype", config.get("torch_dtype"))
    assert (answer["deployment"], answer["engine"]["image"]) == ("vllm-a", "sha256:0")


def test_an_engine_on_another_hosts_loopback_is_reached_through_ssh(
    vllm_server: Server, model_dir: Path, shared_engine_host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host = shared_engine_host
    record(vllm_server, model_dir, ("ssh", *host.ssh_options(), "-p", str(host.port), "root@127.0.0.1"))
    answer = measured(capsys, "vllm-a")
    assert "SSH tunnel" in answer["reached"]
    assert [rung["errors"] for rung in answer["rungs"]] == [0, 0]
    assert "config.json, which is on lab" in answer["unknown"]["precision"]
    assert answer["unknown"]["gpu"] == "the engine's address is not this machine's"


def test_prompts_that_repeat_would_be_noticed(vllm_server: Server) -> None:
    there = endpoint(vllm_server.url)
    work = Workload(model=vllm_server.model, input_len=600, output_len=4, nonce="the same twice")
    rates: list[float | None] = []
    for _ in range(2):
        before = engine.metrics(there)
        recording = Loop(there, work, 1, 2, timeout_s=60, hooks=Hooks()).run()
        found = engine.delta(before, engine.metrics(there), sum(sample.tokens for sample in recording.samples))
        rates.append(found.prefix_cache_hit_rate if found else None)
    assert rates[0] == 0
    assert (rates[1] or 0) > 0.5
