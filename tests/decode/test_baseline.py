"""The command line of `lpxdoctor baseline`: its answer, its exit status, its files, and no traceback ever."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from lpxdoctor.decode import engine
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.profile import decode
from lpxdoctor.decode.target import KEY_VARIABLE
from tests.decode.peer import ROOT, serving, serving_apart
from tests.decode.script import Script
from tests.report.schemas import valid

ATTEMPTS = 3  # a server that other tests starve is not as fast as its script


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def baseline(url: str, *options: str) -> int:
    short = ("--concurrency", "1,3", "--requests", "6", "--input-len", "24", "--output-len", "6")
    return run(["baseline", url, *short, *options])


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state/lpxdoctor/baselines").glob("*"))


def as_scripted(rung: dict[str, Any]) -> bool:
    """Return whether a rung has the times of a script of 50 ms, then 20: widely, for test_load is exact."""
    times = all(
        rung[metric]["p50"] == pytest.approx(expected, rel=0.2)
        for metric, expected in (("ttft_ms", 50), ("itl_ms", 20), ("tpot_ms", 20))
    )
    return times and rung["requests_per_s"] == pytest.approx(rung["concurrency"] / (0.05 + 5 * 0.02), rel=0.3)


def test_the_answer_has_what_scripts_rely_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer: dict[str, Any] = {}
    attempts = status = 0
    with serving_apart(Script(ttft_s=0.05, gap_s=0.02)) as url:
        while attempts < ATTEMPTS and not (answer and all(map(as_scripted, answer["rungs"]))):
            status = baseline(url, "--model", "peer", "--format", "json")
            answer = json.loads(capsys.readouterr().out)
            attempts += 1
    valid(answer, "baseline-1")
    assert status == (0 if all(rung["valid"] for rung in answer["rungs"]) else 1)
    assert answer["schema"] == 1
    assert [rung["concurrency"] for rung in answer["rungs"]] == [1, 3]
    for rung in answer["rungs"]:
        assert (rung["requests"], rung["errors"]) == (6, 0)
        assert as_scripted(rung)
        for metric in ("ttft_ms", "itl_ms", "tpot_ms"):
            assert rung[metric]["p50"] <= rung[metric]["p95"] <= rung[metric]["p99"]
        assert rung["output_tokens_per_s"] == pytest.approx(6 * rung["requests_per_s"])
        assert rung["engine"]["generation_tokens"] == rung["engine"]["received_tokens"]
        assert {"valid", "invalid_because"} <= rung.keys()
    # The seven fields that a profile keeps at least, and what repeats it; what is not known is null with the reason.
    assert (answer["model"], answer["input_len"], answer["output_len"]) == ("peer", 24, 6)
    assert answer["engine"]["version"] == "9.9.9"
    for field in ("precision", "gpu", "driver"):
        assert answer[field] is not None or answer["unknown"][field]
    assert answer["command"][:2] == ["lpxdoctor", *sys.argv[1:2]]
    files = kept(tmp_path)
    assert len(files) == attempts
    assert answer["id"] in {decode(file.read_bytes(), str(file)).id for file in files}


def test_the_table_fits_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.json"
    with serving(Script()) as peer:
        baseline(peer.url, "-o", str(file))
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines if line.strip()[:2] in ("1 ", "3 ")] != []
    table = [line for line in lines if line.lstrip().startswith(("at ", "once ", "1 ", "3 "))]
    assert len(table) >= 4
    assert all(len(line) <= 80 for line in table), table
    assert f"{file}" in out
    assert "kernel's receive times" in out
    assert not kept(tmp_path)
    assert decode(file.read_bytes(), "mine").output_len == 6


def test_a_line_that_cannot_be_compared_says_why_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(fault="http-503", fault_on=(5,), cached_share=0.5)) as peer:
        status = baseline(peer.url, "--format", "json")
    rung = json.loads(capsys.readouterr().out)["rungs"][0]
    assert status == 1
    assert (rung["requests"], rung["errors"], rung["errors_by_kind"]) == (5, 1, {"http-503": 1})
    assert "1 of 6 requests failed (http-503 1)" in rung["invalid_because"]
    assert "50.0% of the prompt tokens came from the prefix cache" in rung["invalid_because"]


def test_requests_of_others_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(foreign_tokens=3)) as peer:
        assert baseline(peer.url) == 1
    assert "served others at the same time" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("script", "dialect"),
    [
        (Script(takes_token_ids=False), {"input_exact": False}),
        (Script(takes_token_ids=False, takes_chunk_usage=False), {"input_exact": False}),
        (Script(takes_chunk_usage=False), {"input_exact": True}),
        (Script(has=("/v1/chat/completions",)), {"input_exact": False}),
        (Script(has=("/v1/chat/completions",), refused=("cache_salt", "ignore_eos")), {"input_exact": False}),
        (Script(refused=("ignore_eos", "temperature", "stream_options")), {"input_exact": True}),
        (Script(refused=("ignore_eos", "stream_options"), names_refused=False), {"input_exact": False}),
    ],
)
def test_a_server_that_does_not_take_everything_is_asked_otherwise(
    script: Script, dialect: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(script) as peer:
        assert baseline(peer.url, "--format", "json") in (0, 1)
    answer = json.loads(capsys.readouterr().out)
    assert {name: answer[name] for name in dialect} == dialect
    assert [rung["errors"] for rung in answer["rungs"]] == [0, 0]
    said = any("text" in note for note in answer["rungs"][0]["notes"])
    assert said == (not dialect["input_exact"])


def test_one_of_two_endpoints_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script()) as peer:
        for options in ((), ("--endpoint", "chat")):
            assert baseline(peer.url, "--format", "json", *options) in (0, 1)
        plain, chat = (json.loads(line) for line in split_objects(capsys.readouterr().out))
    assert (plain["api"], plain["input_exact"]) == ("/v1/completions", True)
    assert (chat["api"], chat["input_exact"]) == ("/v1/chat/completions", False)
    assert [rung["prompt_tokens"] for rung in chat["rungs"]] == [24, 24]
    with serving(Script(has=("/v1/chat/completions",))) as peer:
        assert baseline(peer.url, "--endpoint", "completions") == 2
    assert len(peer.seen) == 0
    assert "no /v1/completions" in capsys.readouterr().err


def test_text_gets_as_many_words_as_give_the_tokens_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(takes_token_ids=False, tokens_per_word=3)) as peer:
        assert baseline(peer.url, "--format", "json") in (0, 1)
    assert {rung["prompt_tokens"] for rung in json.loads(capsys.readouterr().out)["rungs"]} == {24}
    assert {len(seen.body["prompt"].split()) for seen in peer.seen if isinstance(seen.body["prompt"], str)} == {24, 8}


def split_objects(text: str) -> list[str]:
    """Split JSON objects that stand one below the other."""
    return [part + "}" for part in text.split("\n}") if part.strip()]


def test_a_server_that_ends_early_is_asked_for_a_least_length(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(answer_tokens=3)) as peer:
        baseline(peer.url, "--format", "json")
    assert {rung["output_tokens"] for rung in json.loads(capsys.readouterr().out)["rungs"]} == {6}
    with serving(Script(answer_tokens=3, takes_min_tokens=False)) as peer:
        baseline(peer.url, "--format", "json")
    rung = json.loads(capsys.readouterr().out)["rungs"][0]
    assert rung["output_tokens"] == 3
    assert "6 of 6 answers have fewer than 6 tokens" in rung["notes"][0]


@pytest.mark.parametrize(
    ("script", "options", "status", "said"),
    [
        (Script(api_key="k"), (), 2, "--api-key-file"),
        (Script(models=("a",)), ("--model", "b"), 2, "It serves: a"),
        (Script(models=("a", "b")), (), 64, "--model"),
        (Script(fault="http-429"), (), 2, "limits the rate"),
        (Script(fault="http-500"), (), 2, "engine's log"),
        (Script(fault="http-404"), (), 2, "no /v1/completions"),
        (Script(fault="stall"), ("--timeout", "0.3"), 2, "--timeout"),
        (Script(fault="cut"), (), 2, "after 2 chunks"),
        (Script(fault="html"), (), 2, "Sign in"),
        (Script(fault="http-307", headers=("Location: http://elsewhere",)), (), 2, "it is at http://elsewhere now"),
        (Script(fault="http-404"), (), 2, "the model's name right"),
        (Script(fault="no-stream"), (), 2, "streamed"),
        (Script(max_model_len=29), (), 64, "served with"),
        (Script(), ("--concurrency", "0"), 64, "--concurrency"),
        (Script(), ("--concurrency", "1,,2"), 64, "--concurrency"),
        (Script(), ("--output-len", "1"), 64, "--output-len"),
        (Script(), ("--timeout", "nan"), 64, "--timeout"),
        (Script(), ("--timeout", "inf"), 64, "--timeout"),
        (Script(), ("-o", "/no/such/directory/p.json"), 64, "cannot be written"),
        (Script(), ("--api-key-file", "/no/such/key"), 64, "cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_explained(
    script: Script,
    options: tuple[str, ...],
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(script) as peer:
        assert baseline(peer.url, *options) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert not kept(tmp_path)


def test_a_server_that_dies_between_rungs_leaves_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script(fault="reset", fault_on=tuple(range(9, 999)), fault_after=0)) as peer:
        assert baseline(peer.url, "--format", "json") == 1
    rungs = json.loads(capsys.readouterr().out)["rungs"]
    assert [rung["requests"] for rung in rungs] == [6, 0]
    assert rungs[0]["errors"] == 0
    assert rungs[1]["ttft_ms"]["p50"] is None
    assert rungs[1]["errors_by_kind"] == {"cut": rungs[1]["errors"]}


def wait_for(url: str, completions: int) -> None:
    deadline = time.monotonic() + 60
    while len(json.loads(engine.fetch(endpoint(url), "/seen")[1])) < completions:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_ends_with_what_was_measured(tmp_path: Path) -> None:
    with serving_apart(Script(ttft_s=0.02, gap_s=0.005)) as url:
        argv = [sys.executable, "-m", "lpxdoctor", "baseline", url, "--concurrency", "2", "--requests", "5000"]
        options = ["--output-len", "4", "--format", "json"]
        with subprocess.Popen([*argv, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_for(url, completions=30)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    answer = json.loads(out)
    assert answer["interrupted"]
    assert 5 < answer["rungs"][0]["requests"] < 4000
    assert "interrupted" in answer["rungs"][0]["invalid_because"]
    (file,) = kept(tmp_path)
    assert decode(file.read_bytes(), str(file)).interrupted


def test_ctrl_c_before_anything_was_measured_leaves_no_file(tmp_path: Path) -> None:
    with serving_apart(Script(ttft_s=60)) as url:
        argv = [sys.executable, "-m", "lpxdoctor", "baseline", url]
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            wait_for(url, completions=1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"nothing was measured" in err
    assert not kept(tmp_path)


def test_nothing_heavy_is_loaded_to_measure() -> None:
    code = "import sys, lpxdoctor.cli.baseline; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    heavy = {"asyncio", "uvloop", "ssl", "rich", "http.client", "docker", "ansible_runner", "pynvml", "urllib.request"}
    heavy |= {"lpxdoctor.sizing.model"}
    assert heavy & set(loaded.split()) == set()


def test_a_terminal_sees_progress_on_stderr_only() -> None:
    with serving(Script()) as peer:
        ours, theirs = os.openpty()
        argv = [sys.executable, "-m", "lpxdoctor", "baseline", peer.url, "--concurrency", "1", "--requests", "20"]
        process = subprocess.Popen(
            [*argv, "--output-len", "8", "--format", "json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs
        )
        out, _ = process.communicate(timeout=60)
        os.close(theirs)
        seen = os.read(ours, 1 << 16).decode()
        os.close(ours)
    assert json.loads(out)["rungs"][0]["requests"] == 20
    assert "1 at once: " in seen
    assert " of 20 answered" in seen
