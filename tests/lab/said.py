"""A command of ours in tests: what it ended with, and whether that is one error for people."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab.engine import docker

KEPT = Path("/var/lib/lpxdoctor/engines")
# The names that tests of a roll-out deploy; other runs of the tests may share the engine.
SERVES, DIES, NONE = OURS = tuple(f"lab-{word}-{os.getpid()}" for word in ("vllm", "dies", "none"))


@dataclass(frozen=True)
class Said:
    """What a command of ours ended with."""

    status: int
    out: str
    err: str


Doctor = Callable[..., Said]


def one_error(said: Said, *parts: str, status: int = 2) -> None:
    """Assert that a command failed with one error for people that has all the parts."""
    assert said.status == status, said
    assert said.out == ""
    assert said.err.startswith("lpxdoctor: ")
    assert said.err.count("lpxdoctor: ") == 1
    assert "Traceback" not in said.err.partition("Its last lines:")[0]
    for part in parts:
        assert part in said.err


def inspect(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("inspect", name))[0]
    return found


def with_variables(file: Path, **variables: object) -> Path:
    file.write_text(yaml.safe_dump(variables))
    return file


def no_trace(name: str) -> None:
    assert name not in docker("ps", "--all", "--format", "{{.Names}}").splitlines()
    assert not (KEPT / name).exists()
