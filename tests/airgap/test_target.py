"""Targets are named as systems name themselves."""

import pytest

from lpxdoctor.airgap.target import TARGETS, named
from lpxdoctor.errors import UsageError


def test_there_are_the_systems_that_the_roles_know() -> None:
    assert [one.name for one in TARGETS] == ["debian12", "debian13", "ubuntu2204", "ubuntu2404", "rhel9", "rocky9"]
    assert {one.name: one.manager for one in TARGETS if one.manager == "dnf"} == {"rhel9": "dnf", "rocky9": "dnf"}


@pytest.mark.parametrize(
    ("name", "machine", "full"),
    [
        ("debian13", "x86_64", "debian13"),
        ("debian13/amd64", "x86_64", "debian13"),
        ("debian13/arm64", "aarch64", "debian13/arm64"),
        ("rocky9/aarch64", "aarch64", "rocky9/arm64"),
    ],
)
def test_an_architecture_may_stand_behind(name: str, machine: str, full: str) -> None:
    target = named(name)
    assert (target.machine, target.name) == (machine, full)


@pytest.mark.parametrize("name", ["", "debian 12", "rocky8", "debian13/riscv64", "/arm64", "debian13/arm64/x"])
def test_what_is_no_target_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(UsageError, match=r"There are: debian12, .*rocky9; /arm64"):
        named(name)
