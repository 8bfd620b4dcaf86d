"""Draining a real engine: what it was asked is answered to the end, what comes later is refused, then it stops."""

import json
import os
import time
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import inventory, playbook
from tests.beside import beside
from tests.lab import vllm
from tests.lab.engine import container, docker, free_port, run, wait_until
from tests.roles.loading import loaded

DRAIN, WORK = loaded("drain", "engine_drain"), loaded("drain", "gpu_work")
NAME = f"lab-drain-{os.getpid()}"
CONTEXT = 2048  # all that the model has
TOKENS = CONTEXT - 48  # some seconds of work
SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="module")
def engine(cpu_image: str, model_dir: Path) -> Iterator[vllm.Server]:
    """Yield a vLLM with the labels that a deployment gives it."""
    port = free_port()
    labels = (f"lpxdoctor.engine={NAME}", "lpxdoctor.network=bridge", f"lpxdoctor.port={port}")
    command = (*vllm.COMMAND, "--max-model-len", f"{CONTEXT}")
    more = ("--name", NAME, *(part for label in labels for part in ("--label", label)))
    with container(cpu_image, *vllm.options(model_dir, f"{port}"), *more, command=command) as identity:
        server = vllm.Server(f"http://127.0.0.1:{port}", "tiny", identity)
        wait_until(lambda: answers(server), "vLLM", lambda: docker("logs", "--tail", "30", NAME), timeout_s=480)
        vllm.let_the_server_speak(identity)
        yield server


def answers(server: vllm.Server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def ask(server: vllm.Server, tokens: int) -> int:
    """Return how many tokens one request got."""
    body = {"model": server.model, "prompt": "hello", "max_tokens": tokens, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


def given(**more: object) -> dict[str, Any]:
    return {"docker_socket": SOCKET, "record": "", "strict": True, **more}


def running() -> str:
    return docker("inspect", "--format", "{{.State.Running}}", NAME)


def filter_rules() -> str:
    return run("iptables", "-w", "-S", "OUTPUT")  # the later of the two chains that are told


@contextmanager
def busy(server: vllm.Server) -> Generator["Future[int]"]:
    """Yield a request that the engine is at work on; on a busy machine one may be answered before that is seen."""
    door = DRAIN.door(DRAIN.container(SOCKET, NAME))
    for _ in range(5):
        with beside(ask, server, TOKENS) as asked:
            seen = lambda: DRAIN.requests_in(door) == 1 or asked.done()  # noqa: E731
            wait_until(seen, "its request", lambda: docker("logs", "--tail", "5", NAME), 60)
            if not asked.done():
                yield asked
                return
    pytest.fail("the engine was never seen at work")


def test_an_engine_that_stays_busy_goes_on(engine: vllm.Server) -> None:
    with busy(engine):
        with vllm.held(engine.container_id):  # for its answer may come sooner than a busy machine gets to ask it
            assert DRAIN.drain(given(), NAME, time.monotonic() + 1) == "requests run or wait in it (1)"
        assert running() == "true"
    assert ask(engine, 1) == 1  # and takes new ones again


def test_an_engine_is_stopped_when_it_has_answered(engine: vllm.Server, collections: Path, tmp_path: Path) -> None:
    record = tmp_path / "state" / "drained.json"
    given_record, until = given(record=str(record)), time.monotonic() + 300
    with busy(engine) as asked, beside(DRAIN.drain, given_record, NAME, until) as draining:
        if os.getuid() == 0:  # nobody else may tell the packet filter
            closed = lambda: "lpxdoctor-drain" in filter_rules() or running() == "false"  # noqa: E731
            wait_until(closed, "the rule", filter_rules, 60)
            with pytest.raises(OSError, match=r"reset|refused|Broken pipe"):  # the last while it was being asked
                ask(engine, 1)
    assert (draining.result(), asked.result()) == ("", TOKENS)
    assert running() == "false"
    assert json.loads(record.read_text()) == [NAME]

    variables = {"localhost": {"drain_state": "resumed", "drain_record": str(record)}}
    sources = [inventory.local(), inventory.for_hosts(variables)]
    outcome = playbook.run("drain", sources, collections=collections, on_event=lambda _: None)
    assert outcome.changed == {"localhost": 1}
    assert running() == "true"
    assert not record.exists()
    assert NAME in {str(each["Names"][0]).lstrip("/") for each in WORK.containers(SOCKET)}
