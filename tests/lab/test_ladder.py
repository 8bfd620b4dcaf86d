"""A ladder on the real vLLM CPU engine ends at the engine's own limit and names it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from tests.lab.vllm import MAX_NUM_SEQS, Server

ATTEMPTS = 3  # an engine that other tests starve runs in bursts, between which nothing waits in it


def test_the_engines_limit_is_the_knee(
    vllm_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    options = ("--ladder", "2,4,8,16", "--input-len", "64", "--output-len", "128", "--format", "json")
    answer: dict[str, Any] = {}
    for _ in range(ATTEMPTS):
        assert run(["baseline", vllm_server.url, *options]) in (0, 1)  # a busy machine may make rungs invalid
        answer = json.loads(capsys.readouterr().out)
        if [rung["concurrency"] for rung in answer["rungs"]] == [2, 4, 8]:
            break
    assert [rung["concurrency"] for rung in answer["rungs"]] == [2, 4, 8]
    assert answer["ladder"]["stopped"].startswith("cap: max_num_seqs reached at 8 at once")
    knee = answer["knee"]
    assert (knee["concurrency"], knee["cause"], knee["confidence"]) == (MAX_NUM_SEQS, "max_num_seqs", "high")
    assert knee["engine_limit"] == MAX_NUM_SEQS
    two, four, eight = answer["rungs"]
    for rung in (two, four):
        assert rung["load"]["running_max"] <= rung["concurrency"]
        assert rung["load"]["waiting_p50"] == 0
    assert eight["load"]["running_max"] == MAX_NUM_SEQS
    assert eight["load"]["waiting_p50"] >= 3
    # What waited there is the engine's own mean, and about what the client saw before its first token.
    assert eight["engine"]["queue_mean_ms"] > 10 * four["engine"]["queue_mean_ms"]
    assert four["engine"]["prefill_mean_ms"] > 0
    assert run(["baseline", "--from", "last"]) in (0, 1)
    assert "Knee: 4 at once, by max_num_seqs (high confidence)" in capsys.readouterr().out
