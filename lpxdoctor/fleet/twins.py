"""What identifies each host in; machines, machine ids and GPUs that answer under several names out."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from lpxdoctor.facts.fact import Fact
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.fleet.traits import read

Kind = Literal["machine", "machine id", "GPU"]
# What anonymize.py writes in their places is the same on every host.
_STAND_IN = re.compile(r"(GPU-)?0{8}-(0{4}-){3}[0-9a-f]{12}|0{16}[0-9a-f]{16}")
_DIGITS = 16


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What two different hosts never share, "" and {} where it could not be read.

    machine is the beginning of the SHA-256 of the machine id, which machine-id(5) asks to keep to oneself; boot is of
    the running kernel; gpus has UUID -> name.
    """

    machine: str = ""
    boot: str = ""
    gpus: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A machine, machine id or GPU that several hosts of the inventory report."""

    kind: Kind  # "machine id": they are several, made from one image
    what: str  # UUID and name of a GPU, "" for the others
    hosts: tuple[str, ...]


def identity(facts: Mapping[type[Fact], Fact]) -> Identity:
    """Return what identifies a host."""
    machine = _own(read(facts, Host, lambda host: host.machine_id))
    gpus = read(facts, Gpus, lambda gpus: {gpu.uuid: gpu.name for gpu in gpus.gpus if not gpu.error}) or {}
    return Identity(
        machine=machine and hashlib.sha256(machine.encode()).hexdigest()[:_DIGITS],
        boot=_own(read(facts, Host, lambda host: host.boot_id)),
        gpus={uuid: name for uuid, name in gpus.items() if _own(uuid)},
    )


def twins(hosts: Mapping[str, Identity]) -> tuple[Twin, ...]:
    """Return what several hosts report; the GPUs of a machine under two names are not reported again."""
    same = _groups((name, (one.machine, one.boot)) for name, one in hosts.items() if one.machine and one.boot)
    cloned = _groups((name, one.machine) for name, one in hosts.items() if one.machine)
    cards = _groups((name, uuid) for name, one in hosts.items() for uuid in one.gpus)
    machines = [set(names) for names in same.values()]
    named = {uuid: name for one in hosts.values() for uuid, name in one.gpus.items()}
    return (
        *(Twin(kind="machine", what="", hosts=names) for names in same.values()),
        *(Twin(kind="machine id", what="", hosts=names) for names in cloned.values() if set(names) not in machines),
        *(
            Twin(kind="GPU", what=f"{uuid} ({named[uuid]})", hosts=names)
            for uuid, names in cards.items()
            if not any(set(names) <= machine for machine in machines)
        ),
    )


K = TypeVar("K")


def _groups(pairs: Iterable[tuple[str, K]]) -> dict[K, tuple[str, ...]]:
    """Return {key: hosts} of the keys that several hosts have."""
    found: dict[K, list[str]] = {}
    for name, key in pairs:
        found.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in found.items() if len(names) > 1}


def _own(text: str | None) -> str:
    """Return an identifier, "" for one that was anonymized or is missing."""
    return "" if text is None or _STAND_IN.fullmatch(text) else text
