"""Baselines of real servers that share nothing with vLLM but the API: llama-cpp-python's and llama.cpp's own."""

import json
import subprocess
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from tests.lab.engine import LAB, free_port, wait_until

pytestmark = pytest.mark.xdist_group("engine")  # no other server is measured meanwhile
TOKENS = 240  # so many that what passes between two answers, on a machine that does other things, is little beside one
SHORT = ("--concurrency", "1,2", "--requests", "6", "--input-len", "32", "--output-len", str(TOKENS), "--format=json")


@pytest.fixture(scope="module")
def model_file(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny model with random weights."""
    model = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    subprocess.run((llama_python, LAB / "make_gguf.py", model), check=True)
    return model


@contextmanager
def serving(*argv: str | Path, port: int, log: Path) -> Generator[str]:
    with (
        log.open("wb") as out,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=out) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url), str(argv), log.read_text, timeout_s=180)
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def measured(url: str, endpoint: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Measure; a busy machine may make a rung invalid, which is no failure of the measuring."""
    assert run(["baseline", url, *SHORT, "--endpoint", endpoint]) in (0, 1)
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["api"] == ("/v1/chat/completions" if endpoint == "chat" else "/v1/completions")
    assert not answer["input_exact"]
    for rung in answer["rungs"]:
        assert (rung["requests"], rung["errors"], rung["retries"]) == (6, 0, {})
        # The last chunk is only the end: as many chunks as tokens were asked for.
        assert (rung["output_tokens"], rung["tokens_per_chunk"]) == (TOKENS, 1)
        assert rung["ttft_ms"]["p50"] > 0
        assert 0 < rung["tpot_ms"]["p50"] < 1000
        assert rung["engine"] is None
    assert "engine.version" in answer["unknown"]
    one = answer["rungs"][0]
    length_s = (one["ttft_ms"]["mean"] + (TOKENS - 1) * one["tpot_ms"]["mean"]) / 1000
    assert one["output_tokens_per_s"] == pytest.approx(TOKENS / length_s, rel=0.25)
    return answer


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_llama_cpp_python_is_measured_as_far_as_it_tells(
    llama_python: Path, model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    # By default it cuts a stream off as soon as another request comes.
    options = ("--n_threads", "1", "--n_ctx", "1024", "--interrupt_requests", "false", "--model_alias", "tiny")
    argv = (llama_python, "-m", "llama_cpp.server", "--model", model_file, "--port", str(port), *options)
    with serving(*argv, port=port, log=tmp_path / "log") as url:
        for endpoint in ("completions", "chat"):
            answer = measured(url, endpoint, capsys)
            assert answer["model"] == "tiny"
            for rung in answer["rungs"]:
                assert rung["prompt_tokens"] is None
                assert any("sends no token counts" in note for note in rung["notes"])


def test_llama_cpps_own_server_is_measured(
    llama_python: Path, model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    argv = (llama_python, LAB / "serve_gguf.py", model_file, str(port))
    with serving(*argv, port=port, log=tmp_path / "log") as url:
        for endpoint in ("completions", "chat"):
            for rung in measured(url, endpoint, capsys)["rungs"]:
                assert rung["prompt_tokens"] > 0
                # Whatever it says, it ends every connection after a stream.
                assert any("requests were sent once more" in note for note in rung["notes"])
