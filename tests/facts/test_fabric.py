"""What systemd, nv-fabricmanager and the file system say becomes Fabric Manager's state."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.evidence import Answer, Unreadable
from lpxdoctor.facts.fabric import MAD_MODULE, SHOW, SUBNET_MANAGER, VERSION, Fabric, same_driver, version
from tests.facts.given import command, evidence

ABSENT = Answer(failure="absent", reason="nv-fabricmanager: No such file or directory")


def shown(load: str, active: str, sub: str, enabled: str, result: str = "success") -> dict[str, object]:
    lines = {"LoadState": load, "ActiveState": active, "SubState": sub, "UnitFileState": enabled, "Result": result}
    return command("".join(f"{key}={value}\n" for key, value in lines.items()))


def test_a_running_manager() -> None:
    fabric = Fabric.parse(
        evidence(
            {
                SHOW: shown("loaded", "active", "running", "enabled"),
                VERSION: command("\n\n\tFabric Manager version is : 580.159.04\n\n"),
                SUBNET_MANAGER: {"/opt/nvidia/nvlsm/sbin/nvlsm": {}},
                MAD_MODULE: {"/sys/module/ib_umad": {}},
            }
        )
    )
    assert fabric.unit is not None
    assert fabric.unit.running
    assert fabric.version == "580.159.04"
    assert fabric.subnet_manager
    assert fabric.mad_module


def test_a_host_without_one_says_so() -> None:
    nothing = {SHOW: shown("not-found", "inactive", "dead", ""), VERSION: ABSENT, SUBNET_MANAGER: {}, MAD_MODULE: {}}
    fabric = Fabric.parse(evidence(nothing))
    assert fabric.unit is None
    assert fabric.version is None
    assert not fabric.installed


def test_a_failed_unit_says_why() -> None:
    unit = Fabric.parse(evidence({SHOW: shown("loaded", "failed", "failed", "enabled", "exit-code")})).unit
    assert unit is not None
    assert not unit.running
    assert str(unit) == "failed (failed, exit-code), enabled"


def test_no_systemd_is_not_no_unit() -> None:
    refused = command(code=1, stderr="System has not been booted with systemd as init system (PID 1). Can't operate.")
    fabric = Fabric.parse(evidence({SHOW: refused, VERSION: ABSENT}))
    with pytest.raises(Unreadable, match="has not been booted with systemd"):
        _ = fabric.unit
    with pytest.raises(Unreadable, match="has not been booted with systemd"):
        _ = fabric.installed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("580.105.08", "580.105.08", True),
        ("580.105", "580.105.08", True),
        ("580.105.08", "580.95.05", False),
        ("570.172.08", "580.172.08", False),
    ],
)
def test_versions_are_the_same_by_their_parts(one: str, other: str, same: bool) -> None:
    assert same_driver(one, other) is same


@given(st.text())
def test_any_text_is_a_version_or_unreadable(text: str) -> None:
    with contextlib.suppress(Unreadable):
        assert version(text) in text
    Fabric.parse(evidence({SHOW: command(text), VERSION: command(text)}))
