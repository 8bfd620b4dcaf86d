"""Tuning the real vLLM CPU engine: a candidate that does not start, one that does, an interruption, and its end."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.tune.command import command
from lpxdoctor.tune.service import Settings
from tests.lab import vllm
from tests.lab.engine import LABEL, ROOT, docker, wait_until

MARK = f"lpxdoctor-lab-tune={os.getpid()}"
LABELS = ("--label", MARK, "--label", f"{LABEL}={os.getpid()}")
LIMIT_S = 900  # two engines start in it, on a machine that may be busy
BAD, GOOD = "--no-such-argument", "--max-num-seqs 4"
SHORT = ("--concurrency", "1,2", "--requests", "6", "--input-len", "32", "--output-len", "12", "--budget", "240")


def recipe(image: str, model_dir: Path) -> str:
    options = vllm.options(model_dir, "{port}")
    words = ("docker", "run", "--rm", *LABELS, *options, image, *vllm.COMMAND, "{arguments}")
    return " ".join(word if "{" in word else shlex.quote(word) for word in words)


def argv(image: str, model_dir: Path, *more: str) -> tuple[str, ...]:
    tries = (f"--try={BAD}", f"--try={GOOD}", "--only", "given", "--format", "json")
    return (sys.executable, "-m", "lpxdoctor", "tune", "--engine", recipe(image, model_dir), *SHORT, *tries, *more)


def running() -> list[str]:
    """Return the containers that are there, less those that Docker is removing: nothing runs in them any more."""
    rows = docker("ps", "--all", "--filter", f"label={MARK}", "--format", "{{.ID}} {{.State}}").splitlines()
    return [row.split()[0] for row in rows if not row.endswith(" removing")]


@pytest.fixture(autouse=True)
def removed_in_any_case(docker_engine: None) -> Iterator[None]:
    yield
    for identity in running():
        subprocess.run(("docker", "rm", "--force", identity), capture_output=True, check=False)  # --rm may be at it


def interrupted_in_the_last_step(command: tuple[str, ...], environment: dict[str, str]) -> dict[str, Any]:
    """Run until the second candidate starts, then type Ctrl-C; return the answer."""
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if f"given 2: {GOOD}" in line:
                wait_until(lambda: bool(running()), "its container", str, 120)
                process.send_signal(signal.SIGINT)
        out = process.communicate()[0]
    assert process.returncode == 130, said
    assert "stops: ends the engine" in said
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_a_run_is_interrupted_resumed_and_leaves_nothing_running(
    cpu_image: str, model_dir: Path, environment: dict[str, str]
) -> None:
    command = argv(cpu_image, model_dir)
    begun = interrupted_in_the_last_step(command, environment)
    assert running() == []
    assert [row["outcome"] for row in begun["steps"]] == ["as found", "did not start"]
    assert begun["ended"] == "interrupted"
    assert f"unrecognized arguments: {BAD}" in begun["steps"][1]["why"]
    assert BAD in Path(begun["steps"][1]["log"]).read_text()

    done = subprocess.run(
        (*command, "--resume"), env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert running() == []
    answer = json.loads(done.stdout)
    assert answer["ended"] == "finished"
    assert answer["steps"][:2] == begun["steps"]
    found, _, good = (row for row in answer["steps"] if row["outcome"] != "measured again")
    # A busy machine may make a rung invalid, and then nothing is said of the gain; the answers are the same always.
    assert good["outcome"] in ("no gain", "kept", "not confirmed", "not judged"), good
    assert good["added"] == GOOD.split()
    assert set(found["tokens_per_s"]) == set(good["tokens_per_s"]) == {"1", "2"}
    assert abs(good["accuracy"]["perplexity_rise"]) < 1e-3
    assert good["accuracy"]["wrong"] == ""
    profile = json.loads(Path(answer["profile"]).read_text())
    assert profile["name"] == "tune"
    assert profile["precision"] is None or profile["precision"] == "bfloat16"
    assert "--enforce-eager" in profile["engine"]["arguments"]


def test_a_container_that_ignores_every_polite_end_is_removed(
    cpu_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing docker run leaves its container running, and the GPU's memory with it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("lpxdoctor.tune.command._GRACE_S", 1.0)
    program = shlex.quote("""
import signal, http.server
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
class Health(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("", 8000), Health).serve_forever()
""")
    started = f"docker run --rm --label {MARK} -p 127.0.0.1:{{port}}:8000 --entrypoint python3 {cpu_image}"
    with command(f"{started} -c {program} {{arguments}}", 120).running(Settings(), lambda: False):
        assert len(running()) == 1
    assert running() == []
