"""A baseline of another engine's real server, llama-cpp-python, which shares nothing with vLLM but the API."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from tests.lab.engine import LAB, free_port, wait_until

REQUIREMENTS = LAB / "llama_cpp.txt"
# Compiled here, as there is no wheel of it: without optimisation that takes a minute on two cores, with it several.
BUILD = {
    "CMAKE_ARGS": "-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF "
    "-DCMAKE_CXX_FLAGS=-O0 -DCMAKE_C_FLAGS=-O1",
    "CMAKE_BUILD_PARALLEL_LEVEL": "2",
}
SHORT = ("--concurrency", "1,2", "--requests", "6", "--input-len", "32", "--output-len", "24", "--format", "json")


@pytest.fixture(scope="module")
def llama_python(pytestconfig: pytest.Config) -> Path:
    """Return the interpreter of an environment with the server, made once for all sessions on this machine."""
    home = pytestconfig.cache.mkdir("llama-cpp")
    made = home / "requirements.txt"
    if not made.exists() or made.read_bytes() != REQUIREMENTS.read_bytes():
        subprocess.run((sys.executable, "-m", "venv", "--clear", home / "venv"), check=True)
        pip = (home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "-r", REQUIREMENTS)
        subprocess.run(pip, check=True, timeout=900, env={**os.environ, **BUILD})
        made.write_bytes(REQUIREMENTS.read_bytes())
    return home / "venv/bin/python"


@pytest.fixture(scope="module")
def llama_server(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a server of a tiny model with random weights."""
    directory, port = tmp_path_factory.mktemp("llama"), free_port()
    model, log = directory / "tiny.gguf", directory / "log"
    subprocess.run((llama_python, LAB / "make_gguf.py", model), check=True)
    # By default it cuts a stream off as soon as another request comes.
    options = ("--n_threads", "1", "--n_ctx", "1024", "--interrupt_requests", "false", "--model_alias", "tiny")
    argv = (llama_python, "-m", "llama_cpp.server", "--model", model, "--host", "127.0.0.1", "--port", str(port))
    with log.open("wb") as out, subprocess.Popen((*argv, *options), stdout=out, stderr=out) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url), "llama-cpp-python", log.read_text, timeout_s=60)
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.lab
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_another_engine_is_measured_as_far_as_it_tells(
    endpoint: str,
    llama_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(["baseline", llama_server, *SHORT, "--endpoint", endpoint]) in (0, 1)  # 1: this machine was too busy
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["model"], answer["input_exact"]) == ("tiny", False)
    assert answer["api"] == ("/v1/chat/completions" if endpoint == "chat" else "/v1/completions")
    for rung in answer["rungs"]:
        assert (rung["requests"], rung["errors"], rung["retries"]) == (6, 0, 0)
        # It counts nothing in a stream, and its last chunk is only the end: as many chunks as tokens were asked for.
        assert (rung["output_tokens"], rung["tokens_per_chunk"], rung["prompt_tokens"]) == (24, 1, None)
        assert rung["ttft_ms"]["p50"] > 0
        assert 0 < rung["tpot_ms"]["p50"] < 1000
        assert rung["engine"] is None
        assert any("sends no token counts" in note for note in rung["notes"])
    assert "engine.version" in answer["unknown"]
    one = answer["rungs"][0]
    length_s = (one["ttft_ms"]["mean"] + 23 * one["tpot_ms"]["mean"]) / 1000
    assert one["output_tokens_per_s"] == pytest.approx(24 / length_s, rel=0.2)
