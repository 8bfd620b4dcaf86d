"""What was deployed, and how to reach it: records as JSON files below the state directory."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.files import write_whole
from lpxdoctor.state import content, made, records, state_dir


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a deployment was asked for, so that it can be rolled out again."""

    variables: dict[str, Any]  # of the role, without engine_secret_env
    secret_env: tuple[str, ...]  # the names of its environment variables that are not kept
    variant: str | None
    image: str | None


class Deployment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine on one host."""

    name: str  # what `lpxdoctor baseline` takes: the engine's name, NAME@host where one run reached several
    host: str  # as the inventory names it, "localhost" for a local one
    url: str  # where the host itself reaches the engine, such as http://127.0.0.1:8000
    served_model: str  # the "model" of a request
    api_key_file: str | None  # on the host, readable by root or who deployed; None: no key is asked for
    image: str  # repository@sha256:... or an image id
    engine_version: str
    arguments: tuple[str, ...]  # of the engine, after the entry point
    model_path: str  # on the host
    ssh: tuple[str, ...]  # argv that runs a command on the host when one is appended; () for this machine
    created: str  # ISO 8601, UTC
    # The host's variables in an Ansible inventory, without passwords; what undeploy reaches it by.
    connection: dict[str, str | int | bool] = msgspec.field(default_factory=dict[str, str | int | bool])
    asked: Asked | None = None  # None in records of 0.1


def names() -> tuple[str, ...]:
    """Return the names of all recorded deployments, sorted."""
    return tuple(sorted(unquote(path.stem) for path in records(_directory().name)))


def save(deployment: Deployment) -> Path:
    """Write the record, replacing one of the same name in a single step; return the file.

    Raises:
        SetupError: the state directory cannot be written.
    """
    made(_directory().name)
    target = _file(deployment.name)
    content = msgspec.json.format(msgspec.json.encode(deployment), indent=2) + b"\n"
    try:
        write_whole(target, content)
    except OSError as error:
        raise SetupError(
            f"{deployment.name} runs, and its record could not be written: {error}.\n"
            "Make room in the state directory and run lpxdoctor deploy again, which changes nothing else."
        ) from error
    return target


def load(name: str) -> Deployment:
    """Return the recorded deployment of that name.

    Raises:
        UsageError: there is none, or its file is none; the message names those that there are.
        SetupError: its file cannot be read.
    """
    target = _file(name)
    kept = content(target)
    if kept is None:
        known = ", ".join(names())
        there_are = f"Recorded here: {known}." if known else "None is recorded here: lpxdoctor deploy makes one."
        raise UsageError(f"No deployment named {name} is recorded in {target.parent}.\n{there_are}")
    try:
        return msgspec.json.decode(kept, type=Deployment)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"The record {target} cannot be read: {error}.\n"
            f"Run lpxdoctor deploy --name {name} again, which rewrites it."
        ) from error


def remove(name: str) -> bool:
    """Delete the record; tell whether there was one."""
    try:
        _file(name).unlink()
    except FileNotFoundError:
        return False
    return True


def _directory() -> Path:
    return state_dir() / "deployments"


def _file(name: str) -> Path:
    # Quoted, so that no name leaves the directory and an IPv6 host stays one file.
    return _directory() / f"{quote(name, safe='@')}.json"
