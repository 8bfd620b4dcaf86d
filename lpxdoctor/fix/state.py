"""What a run of fix must remember beyond itself: a record and a lock for each host, below the state directory."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.files import write_whole
from lpxdoctor.state import content, held, made, records, state_dir

GpuPolicy = Literal["refuse", "drain", "force"]


class Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for; files are kept by their paths, for they may hold secrets."""

    source: str = ""  # the value of -i, "" for this machine
    ids: tuple[str, ...] = ()
    gpu_work: GpuPolicy = "refuse"
    drain_s: int = 0
    reboot: bool = False
    variables: str = ""  # a file
    policy: str = ""  # a file
    container_test: bool = True


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a host is."""

    schema: Literal[1] = 1
    host: str
    wishes: Wishes
    started: str  # ISO 8601, UTC
    stage: Literal["running", "reboot", "finished"]
    targets: tuple[str, ...]  # what was found and is to be gone
    applied: tuple[str, ...] = ()  # of them, what a playbook was run against to its end
    running: str = ""  # the playbook that runs now
    before: str  # the evidence of before, a file
    booted: str = ""  # what tells this boot from the next one
    said: str = ""  # what a run after the boot reported, kept until somebody asks
    document: str = ""  # the same as JSON


def save(record: Record) -> Path:
    """Write a host's record, replacing the former in a single step; return the file.

    Raises:
        SetupError: the state directory cannot be written.
    """
    made(_directory().name)
    target = record_file(record.host)
    try:
        write_whole(target, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    except OSError as error:
        raise SetupError(
            f"How far {record.host} is could not be kept in {target}: {error.strerror}.\n"
            "Make room, or set XDG_STATE_HOME to a directory that can be written, and run this again."
        ) from None
    return target


def load(host: str) -> Record | None:
    """Return a host's record, None where there is none.

    Raises:
        UsageError: it is none.
        SetupError: it cannot be read.
    """
    file = record_file(host)
    kept = content(file)
    try:
        return None if kept is None else msgspec.json.decode(kept, type=Record)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"The record {file} of what was planned for {host} cannot be read: {error}.\n"
            f"Remove it and run lpxdoctor fix anew, which looks at the host again: rm {file}"
        ) from None


def hosts() -> tuple[str, ...]:
    """Return the hosts that have a record, sorted."""
    return tuple(sorted(unquote(path.name.removesuffix(".json")) for path in records(_directory().name)))


def remove(host: str) -> None:
    """Delete a host's record, if there is one."""
    record_file(host).unlink(missing_ok=True)


def keep_evidence(host: str, moment: Literal["before", "after"], text: str) -> Path:
    """Write a host's evidence of before or after, for its owner alone and in place of the former; return the file."""
    made(_directory().name)
    file = evidence_file(host, moment)
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(file, text.encode())
    except OSError as error:
        raise SetupError(
            f"The evidence of {host} cannot be kept in {file}: {error.strerror}.\nMake room there."
        ) from None
    return file


def evidence_file(host: str, moment: Literal["before", "after"]) -> Path:
    """Return where a host's evidence is kept."""
    return _directory() / "evidence" / f"{quote(host, safe='')}-{moment}.json"


@contextmanager
def locked(host: str) -> Generator[str]:
    """Hold a host for one run; yield "" or, where another run holds it, who that is."""
    made(_directory().name)
    with held(_file(host, ".lock")) as holder:
        yield f"another lpxdoctor fix works on it ({holder})" if holder else ""


def record_file(host: str) -> Path:
    """Return where a host's record is kept."""
    return _file(host, ".json")


def _directory() -> Path:
    return state_dir() / "fix"


def _file(host: str, suffix: str) -> Path:
    # Quoted, so that no name leaves the directory and an IPv6 address stays one file.
    return _directory() / f"{quote(host, safe='')}{suffix}"
