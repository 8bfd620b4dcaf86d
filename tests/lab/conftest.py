"""What the tests of a roll-out share: lpxdoctor as a user runs it, with a state directory of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lpxdoctor import galaxy
from tests.lab.engine import docker
from tests.lab.faults import Ward, ward_of
from tests.lab.hosts import Host
from tests.lab.plays import Player, player
from tests.lab.said import OURS, Doctor, Said
from tests.report.schemas import valid_of


@pytest.fixture(scope="session")
def collections() -> Path:
    """Return the collections, fetched once for all sessions on this machine."""
    return galaxy.ensure()


@pytest.fixture(scope="module")
def environment(collections: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a state directory of its own."""
    state = str(tmp_path_factory.mktemp("state"))
    return {**os.environ, "XDG_STATE_HOME": state, "ANSIBLE_COLLECTIONS_PATH": str(collections)}


@pytest.fixture(scope="module")
def doctor(docker_engine: None, environment: dict[str, str]) -> Doctor:
    """Return what runs lpxdoctor as a user does."""

    def run(*argv: str | Path, env: dict[str, str] | None = None, timeout_s: float = 900) -> Said:
        command = (sys.executable, "-m", "lpxdoctor", *argv)
        done = subprocess.run(
            command, env={**environment, **(env or {})}, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if "json" in argv and done.stdout:
            valid_of(argv, json.loads(done.stdout))
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def to_ward(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Host], Ward]:
    """Return what makes a ward of a host: lpxdoctor runs in this process, with a state directory of its own."""
    for name in ("XDG_STATE_HOME", "ANSIBLE_COLLECTIONS_PATH"):
        monkeypatch.setenv(name, environment[name])
    return lambda host: ward_of(host, tmp_path, lambda: capsys.readouterr().out)


@pytest.fixture(scope="module")
def play(host: Host, tmp_path_factory: pytest.TempPathFactory, collections: Path) -> Player:
    """Return what runs playbooks on the host of a module, as anybody does."""
    return player(host, tmp_path_factory.mktemp("inventory"), collections)


@pytest.fixture
def ward(host: Host, to_ward: Callable[[Host], Ward]) -> Ward:
    """Return the ward of the host of a module."""
    return to_ward(host)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """See that a test leaves no container half made, whatever it was about."""
    yield
    names = docker("ps", "--all", "--format", "{{.Names}}").splitlines()
    assert not {f"{name}.candidate" for name in OURS} & set(names)
