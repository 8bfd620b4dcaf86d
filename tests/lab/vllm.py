"""The real inference engine for tests: an image and a model directory in, vLLM on 127.0.0.1 out."""

import os
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.lab.engine import container, docker, free_port, wait_until

MAX_MODEL_LEN = 1024
CACHE = "lpxdoctor-lab-vllm"  # a volume; it stays as the images do
MAX_NUM_SEQS = 4  # of the shared one: few enough that a ladder meets it
COMMAND = (
    *("-m", "vllm.entrypoints.openai.api_server", "--model", "/model", "--load-format", "dummy"),
    *("--served-model-name", "tiny", "--enforce-eager", "--max-model-len", str(MAX_MODEL_LEN)),
    *("--host", "0.0.0.0", "--port", "8000"),
)


@dataclass(frozen=True)
class Server:
    """A vLLM that is ready: url has no path, model is the served name; no API key is asked for."""

    url: str
    model: str
    container_id: str


def options(model_dir: Path, port: str) -> tuple[str, ...]:
    """Return what a container of the CPU engine is run with, to answer on a port of 127.0.0.1."""
    return (
        *("--read-only", "--tmpfs", "/tmp:exec", "--tmpfs", "/root:exec", "--shm-size", "1g"),
        *("-v", f"{model_dir}:/model:ro", "-p", f"127.0.0.1:{port}:8000"),
        # What vLLM finds out of a model's class, by a process that imports all again: a third of the time of a start.
        *("-v", f"{CACHE}:/root/.cache/vllm"),
        *("-e", "OMP_NUM_THREADS=1", "-e", "VLLM_CPU_KVCACHE_SPACE=1", "-e", "HF_HUB_OFFLINE=1"),
        *("-e", "VLLM_NO_USAGE_STATS=1", "--entrypoint", "python3"),
    )


@contextmanager
def started(image: str, model_dir: Path) -> Generator[Server]:
    """Serve the model with random weights until the block ends; within about a minute on two cores."""
    port = free_port()
    command = (*COMMAND, "--max-num-seqs", f"{MAX_NUM_SEQS}")
    with container(image, *options(model_dir, f"{port}"), command=command) as identity:
        server = Server(f"http://127.0.0.1:{port}", "tiny", identity)
        wait_until(lambda: _is_ready(server), "vLLM", lambda: docker("logs", "--tail", "30", identity), timeout_s=480)
        let_the_server_speak(identity)
        yield server


def let_the_server_speak(container_id: str) -> None:
    """Make vLLM's core and worker stand back for its API server.

    The two wait for each other by spinning, so they take both of two cores, and the server would send what it has when
    it gets a moment: all tokens of an answer at once, and /metrics too late.
    """
    for pid in _core(container_id):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # some only help at the start
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)


def _core(container_id: str) -> list[int]:
    """Return the processes of vLLM's core and worker, by this machine's numbers."""
    rows = (line.split(maxsplit=1) for line in docker("top", container_id, "-eo", "pid,comm").splitlines())
    return [int(pid) for pid, name in rows if name.startswith("VLLM::")]


def _is_ready(server: Server) -> bool:
    running = docker("inspect", "--format", "{{.State.Running}}", server.container_id)
    assert running == "true", docker("logs", "--tail", "30", server.container_id)
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
