"""Which hosts a bundle is for: what /etc/os-release and the kernel say against the bundle's target."""

from typing import Any

import msgspec
import pytest

from lpxdoctor.airgap.manifest import System
from lpxdoctor.airgap.target import named
from tests.roles.loading import loaded

LOOK = loaded("bundle", "bundle_look")


def refused(target: str, distribution: str, version: str, machine: str = "x86_64") -> str | None:
    system: dict[str, Any] = msgspec.to_builtins(msgspec.convert(named(target), System, from_attributes=True))
    told: str | None = LOOK.other_system(system, {"ID": distribution, "VERSION_ID": version}, machine)
    return told


@pytest.mark.parametrize(
    ("target", "distribution", "version", "machine"),
    [
        ("debian12", "debian", "12", "x86_64"),
        ("debian13/arm64", "debian", "13", "aarch64"),
        ("ubuntu2404", "ubuntu", "24.04", "x86_64"),
        ("rocky9", "rocky", "9.7", "x86_64"),
        ("rhel9", "rhel", "9.0", "x86_64"),
    ],
)
def test_its_own_system_is_taken(target: str, distribution: str, version: str, machine: str) -> None:
    assert refused(target, distribution, version, machine) is None


@pytest.mark.parametrize(
    ("target", "distribution", "version", "machine", "wanted"),
    [
        ("debian12", "debian", "13", "x86_64", "debian13"),
        ("debian12", "debian", "12", "aarch64", "debian12/arm64"),
        ("debian12/arm64", "debian", "12", "x86_64", "debian12"),
        ("ubuntu2404", "ubuntu", "22.04", "x86_64", "ubuntu2204"),
        ("rocky9", "rhel", "9.7", "x86_64", "rhel9"),
        ("rocky9", "rocky", "10.1", "x86_64", "rocky10"),
        ("rocky9", "rocky", "90", "x86_64", "rocky90"),
    ],
)
def test_another_is_refused_with_what_to_make(
    target: str, distribution: str, version: str, machine: str, wanted: str
) -> None:
    told = refused(target, distribution, version, machine)
    assert told is not None
    assert f"this host is {distribution} {version} {machine}. Nothing was changed." in told
    assert told.endswith(f"lpxdoctor bundle create --for {wanted}")
