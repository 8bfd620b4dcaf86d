"""Hosts that are not two: one machine under two names, clones of an image, a GPU that two hosts show."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import anonymize
from lpxdoctor.collect import collect
from lpxdoctor.evidence import Answer, Evidence, from_json
from lpxdoctor.facts import host as facts
from lpxdoctor.facts.gpu import NVML, Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.fleet.twins import Identity, Twin, identity, twins

RECORDED = Path(__file__).resolve().parents[1] / "hosts" / "h200-cdi" / "evidence.json"
ID, OTHER_ID = "5f2c5a5b0d0e4b1f9a4b0f7f3f5f2c5a", "6f2c5a5b0d0e4b1f9a4b0f7f3f5f2c5a"
BOOT, OTHER_BOOT = "4d4c6b0e-6b8f-4a6c-9f5c-0f6d1b2a3c4d", "5d4c6b0e-6b8f-4a6c-9f5c-0f6d1b2a3c4d"
UUID, OTHER_UUID = "GPU-1d3cdd27-2b1a-4a63-8c5e-4a7c7e1d9f10", "GPU-2d3cdd27-2b1a-4a63-8c5e-4a7c7e1d9f10"
STAND_IN = "00000000-0000-0000-0000-000000000001"


def own(machine: str | None, boot: str, uuid: str) -> Identity:
    """Return the identity of the recorded H200, with what it said of itself replaced; None: the file is not there."""
    evidence = from_json(RECORDED.read_text().replace(f"GPU-{STAND_IN}", uuid))
    absent = Answer(failure="absent", reason="No such file or directory")
    told = {facts.MACHINE_ID.key: Answer(f"{machine}\n") if machine else absent, facts.BOOT_ID.key: Answer(f"{boot}\n")}
    evidence = replace(evidence, answers={**evidence.answers, **told})
    return identity({Host: Host.parse(evidence), Gpus: Gpus.parse(evidence)})


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ((ID, BOOT, UUID), (OTHER_ID, OTHER_BOOT, OTHER_UUID), []),
        ((ID, BOOT, UUID), (ID, BOOT, UUID), [("machine", "")]),
        ((ID, BOOT, UUID), (ID, OTHER_BOOT, OTHER_UUID), [("machine id", "")]),
        ((ID, BOOT, UUID), (OTHER_ID, OTHER_BOOT, UUID), [("GPU", f"{UUID} (NVIDIA H200)")]),
        # The disk of one with the card of the other: both are told.
        ((ID, BOOT, UUID), (ID, OTHER_BOOT, UUID), [("machine id", ""), ("GPU", f"{UUID} (NVIDIA H200)")]),
        ((ID, BOOT, UUID), (OTHER_ID, BOOT, OTHER_UUID), []),  # containers of one kernel
        ((None, BOOT, UUID), (None, BOOT, OTHER_UUID), []),
        # What was anonymized is the same everywhere.
        ((f"{1:032x}", STAND_IN, f"GPU-{STAND_IN}"), (f"{1:032x}", STAND_IN, f"GPU-{STAND_IN}"), []),
    ],
)
def test_two_hosts(one: Any, other: Any, found: list[tuple[str, str]]) -> None:
    told = twins({"a": own(*one), "b": own(*other), "silent": Identity(gpus={})})
    assert told == tuple(Twin(kind=kind, what=what, hosts=("a", "b")) for kind, what in found)  # type: ignore[arg-type]


def test_a_machine_that_is_there_twice_and_its_clone() -> None:
    hosts = {"a": own(ID, BOOT, UUID), "b": own(ID, BOOT, UUID), "c": own(ID, OTHER_BOOT, OTHER_UUID)}
    assert [(twin.kind, twin.hosts) for twin in twins(hosts)] == [
        ("machine", ("a", "b")),
        ("machine id", ("a", "b", "c")),
    ]


def test_this_machine_has_an_identity_and_its_id_stays_here() -> None:
    evidence = collect((facts.MACHINE_ID, facts.BOOT_ID), {})
    known = Host.parse(evidence)
    assert known.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    found = identity({Host: known})
    assert found.boot == known.boot_id
    assert (found.machine == "") == (known.machine_id == "")
    assert known.machine_id not in found.machine or not known.machine_id


def test_an_anonymized_host_is_nobodys_twin() -> None:
    answers = {facts.MACHINE_ID.key: Answer(f"{ID}\n"), facts.BOOT_ID.key: Answer(f"{BOOT}\n")}
    answers[NVML.key] = Answer({"error": None, "gpus": [], "note": UUID})
    hidden = anonymize.anonymize(Evidence("gpu-1", answers))
    assert ID not in repr(hidden)
    assert BOOT not in repr(hidden)
    assert UUID not in repr(hidden)
    assert identity({Host: Host.parse(hidden)}) == Identity(gpus={})
