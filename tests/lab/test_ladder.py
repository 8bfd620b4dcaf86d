"""A ladder on the real vLLM CPU engine ends at the engine's own limit and names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from tests.lab.vllm import MAX_NUM_SEQS, Server

TOKENS = 256  # so many that what passes between two answers is little beside one
MANY = 16  # so many that some wait in the engine though a busy machine is late to send the next ones
ATTEMPTS = 3  # an engine that other tests starve runs in bursts, between which nothing waits in it


def undisturbed(rungs: list[dict[str, Any]]) -> bool:
    """Return whether a ladder came to the engine's limit, and requests waited in the engine there, by its own mean."""
    if [rung["concurrency"] for rung in rungs] != [2, 4, MANY]:
        return False
    _, four, many = rungs
    waited = many["engine"]["queue_mean_ms"] > 10 * four["engine"]["queue_mean_ms"]
    return bool(waited and many["load"]["waiting_p50"] >= 3)


def test_the_engines_limit_is_the_knee(
    vllm_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    options = ("--ladder", f"2,4,{MANY},32", "--input-len", "64", "--output-len", f"{TOKENS}", "--format", "json")
    answer: dict[str, Any] = {}
    for _ in range(ATTEMPTS):
        assert run(["baseline", vllm_server.url, *options]) in (0, 1)  # a busy machine may make rungs invalid
        answer = json.loads(capsys.readouterr().out)
        if undisturbed(answer["rungs"]):
            break
    assert undisturbed(answer["rungs"])
    assert answer["ladder"]["stopped"].startswith(f"cap: max_num_seqs reached at {MANY} at once")
    knee = answer["knee"]
    assert (knee["concurrency"], knee["cause"], knee["confidence"]) == (MAX_NUM_SEQS, "max_num_seqs", "high")
    assert knee["engine_limit"] == MAX_NUM_SEQS
    two, four, many = answer["rungs"]
    for rung in (two, four):
        assert rung["load"]["running_max"] <= rung["concurrency"]
        assert rung["load"]["waiting_p50"] == 0
    assert many["load"]["running_max"] == MAX_NUM_SEQS
    assert four["engine"]["prefill_mean_ms"] > 0
    assert run(["baseline", "--from", "last"]) in (0, 1)
    assert "Knee: 4 at once, by max_num_seqs (high confidence)" in capsys.readouterr().out
