"""Draining a real engine: what it was asked is answered to the end, what comes later is refused, then it stops."""

import http.client
import json
import os
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
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
CONTEXT = 200_000  # far more than the model was made for, so that a request lasts
TOKENS = 4_000  # some seconds of work
SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="module")
def engine(cpu_image: str, model_dir: Path) -> Iterator[vllm.Server]:
    """Yield a vLLM with the labels that a deployment gives it."""
    port = free_port()
    labels = (f"lpxdoctor.engine={NAME}", "lpxdoctor.network=bridge", f"lpxdoctor.port={port}")
    command = (*vllm.COMMAND, "--max-model-len", f"{CONTEXT}")
    more = ("--name", NAME, *(part for label in labels for part in ("--label", label)))
    more = (*more, "-e", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
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


def question(server: vllm.Server, tokens: int) -> tuple[bytes, dict[str, str]]:
    """Return body and header fields of a request for as many tokens."""
    body = {"model": server.model, "prompt": "hello", "max_tokens": tokens, "ignore_eos": True}
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


def ask(server: vllm.Server, tokens: int) -> int:
    """Return how many tokens one request got."""
    request = urllib.request.Request(f"{server.url}/v1/completions", *question(server, tokens))
    with urllib.request.urlopen(request, timeout=300) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


@contextmanager
def kept_busy(server: vllm.Server) -> Generator[None]:
    """Give the engine a request that no machine answers before the block ends, when it is hung up."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    try:
        connection.request("POST", "/v1/completions", *question(server, CONTEXT - 48))
        wait_until(has_requests(1), "its request", last_words, 60)
        yield
    finally:
        connection.close()
    wait_until(has_requests(0), "the end of its request", last_words, 60)


def has_requests(count: int) -> Callable[[], bool]:
    """Return whether the engine tells of as many requests, to be asked again."""
    door = DRAIN.door(DRAIN.container(SOCKET, NAME))
    return lambda: DRAIN.requests_in(door) == count


def last_words() -> str:
    return docker("logs", "--tail", "5", NAME)


def given(**more: object) -> dict[str, Any]:
    return {"docker_socket": SOCKET, "record": "", "strict": True, **more}


def running() -> str:
    return docker("inspect", "--format", "{{.State.Running}}", NAME)


def filter_rules() -> str:
    return run("iptables", "-w", "-S", "OUTPUT")  # the later of the two chains that are told


def test_an_engine_that_stays_busy_goes_on(engine: vllm.Server) -> None:
    with kept_busy(engine):
        assert DRAIN.drain(given(), NAME, time.monotonic() + 1) == "requests run or wait in it (1)"
        assert running() == "true"
    assert ask(engine, 1) == 1  # and takes new ones again


def test_an_engine_is_stopped_when_it_has_answered(engine: vllm.Server, collections: Path, tmp_path: Path) -> None:
    record = tmp_path / "state" / "drained.json"
    given_record, until = given(record=str(record)), time.monotonic() + 300
    at_work = has_requests(1)
    with beside(ask, engine, TOKENS) as asked:
        wait_until(lambda: at_work() or asked.done(), "its request", last_words, 60)
        with beside(DRAIN.drain, given_record, NAME, until) as draining:
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
