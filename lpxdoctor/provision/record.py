"""How far a run is: a record for each inventory, below the state directory, written whole at every step."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.files import write_whole
from lpxdoctor.state import content, held, made

Stage = Literal["waiting", "running", "done", "failed"]
Phase = Literal["", "playbooks", "check", "deploy", "baseline"]
SITE = ("site",)


class Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for; files are kept by their paths, for they may hold secrets."""

    source: str  # the value of -i
    serial: tuple[str, ...]
    max_fail: int
    name: str  # of the engine
    playbooks: tuple[str, ...] = SITE
    reboot: bool = False
    container_test: bool = True
    variables: str = ""  # a file
    variant: str | None = None  # of the engine
    policy: str = ""  # a file


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one host is."""

    stage: Stage = "waiting"
    phase: Phase = ""  # where it is, or failed
    because: str = ""  # why it failed, or waits again
    changed: int = 0  # tasks of the playbooks that changed something, over all runs
    tokens_per_s: dict[str, float] = {}  # requests at once -> of its baseline


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run of provision: what was asked for, and how far each host is."""

    schema: Literal[1] = 1
    wishes: Wishes
    started: str  # ISO 8601, UTC
    hosts: dict[str, Host]  # in the inventory's order
    canary: str = ""  # the first host that was done: the others are compared with it

    def at(self, *stages: Stage) -> tuple[str, ...]:
        """Return the hosts at these stages."""
        return tuple(name for name, host in self.hosts.items() if host.stage in stages)

    def having(self, names: Sequence[str], **changes: object) -> "Record":
        """Return the record with these fields of some hosts replaced."""
        replaced = {name: msgspec.structs.replace(self.hosts[name], **changes) for name in names}
        return msgspec.structs.replace(self, hosts={**self.hosts, **replaced})


def file_of(source: str) -> Path:
    """Return where the record of an inventory is."""
    return made("provision") / f"{sha256(source.encode()).hexdigest()[:16]}.json"


def save(record: Record) -> None:
    """Write a record in a single step.

    Raises:
        SetupError: the state directory cannot be written.
    """
    target = file_of(record.wishes.source)
    try:
        write_whole(target, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    except OSError as error:
        raise SetupError(
            f"How far the hosts are could not be kept in {target}: {error.strerror}.\n"
            "Make room there, or set XDG_STATE_HOME; then go on with --resume."
        ) from None


def load(source: str) -> Record:
    """Return the record of an inventory.

    Raises:
        UsageError: there is none, or it is none.
        SetupError: it cannot be read.
    """
    file = file_of(source)
    kept = content(file)
    if kept is None:
        raise UsageError(
            f"No run with -i {source} is on record, so there is nothing to go on with.\nStart one without --resume."
        )
    try:
        return msgspec.json.decode(kept, type=Record)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"The record {file} cannot be read: {error}.\nStart anew without --resume, which looks at every host again."
        ) from None


@contextmanager
def locked(source: str) -> Generator[None]:
    """Hold an inventory for one run; UsageError where another one holds it."""
    with held(file_of(source).with_suffix(".lock")) as holder:
        if holder:
            raise UsageError(
                f"Another lpxdoctor provision works on {source}: {holder}.\n"
                "Wait until it has ended, or end it: its hosts are left in a known state, and --resume goes on."
            )
        yield
