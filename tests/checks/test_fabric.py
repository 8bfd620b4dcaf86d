"""Fabric Manager is asked for where a fabric is, by what shows it, and never by a GPU's name."""

from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.check import Finding, NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.fabric import Fabric, Unit
from lpxdoctor.facts.gpu import NVML, Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.nvml import FabricState
from tests.checks.judging import by_id, found
from tests.facts.builders_cuda import RUNNING, fabric, tried
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus, host_with, pci_gpu
from tests.facts.given import H200, evidence

SWITCH = pci_gpu(7, device=0x22A3, class_code=0x068000, driver="nvidia-nvswitch", width=None, width_max=None)
NOT_READY = replace(tried("cuda of an older library"), library="")  # an error of cuInit: here 802 in its place
FAILED = Unit("failed", "failed", "enabled", "exit-code")
NONE = fabric(unit=None, version=None, subnet_manager=False, mad_module=False)
MANAGED = [
    *("fabric.manager-not-installed", "fabric.manager-version-differs", "fabric.manager-not-running"),
    *("fabric.not-completed", "fabric.subnet-manager-missing", "fabric.mad-module-not-loaded"),
]


def in_state(state: int, health: int = 0, status: int = 0, **changes: Any) -> Gpus:
    return healthy_gpus(healthy_gpu(fabric=FabricState(state, status, health), **changes))


def judged(check_id: str, manager: Fabric, *, host: Host | None = None, gpus: Gpus | None = None) -> list[Finding]:
    """Judge a host whose CUDA does not start: one with H100s and their NVSwitches, unless another is given."""
    hopper = host_with(pci_gpu(), SWITCH)
    return found(check_id, host or hopper, gpus or in_state(FabricState.NOT_STARTED), manager, NOT_READY)


def b200() -> dict[str, Any]:
    """Return a host whose switches are not on the PCI bus: the fabric shows in what the GPUs say alone."""
    return {"host": host_with(), "gpus": in_state(FabricState.IN_PROGRESS, device_id=0x2901, name="NVIDIA B200")}


def test_a_fabric_without_a_manager() -> None:
    (finding,) = judged("fabric.manager-not-installed", NONE)
    assert "1 NVSwitches" in finding.seen[0].value
    assert judged("fabric.manager-not-installed", fabric()) == []


def test_a_manager_of_another_version_names_both() -> None:
    (finding,) = judged("fabric.manager-version-differs", fabric(version="580.95.05"))
    assert "580.95.05 does not start on driver 580.159.04" in finding.message
    assert judged("fabric.manager-version-differs", fabric(version="580.159")) == []  # NVML shortens some versions


def test_a_manager_that_failed() -> None:
    (finding,) = judged("fabric.manager-not-running", fabric(unit=FAILED))
    assert "failed (failed, exit-code)" in finding.seen[1].value
    assert judged("fabric.manager-not-running", fabric()) == []


def test_a_gpu_that_was_not_taken_in() -> None:
    (finding,) = judged("fabric.not-completed", fabric(), gpus=in_state(FabricState.IN_PROGRESS))
    assert "in progress" in finding.message
    assert judged("fabric.not-completed", fabric(), gpus=in_state(FabricState.COMPLETED)) == []


@pytest.mark.parametrize("check_id", ["fabric.subnet-manager-missing", "fabric.mad-module-not-loaded"])
def test_the_newest_boards_need_more(check_id: str) -> None:
    (finding,) = judged(check_id, fabric(subnet_manager=False, mad_module=False), **b200())
    assert finding.seen[-1].value == "in progress"
    assert judged(check_id, fabric(), **b200()) == []
    with pytest.raises(NotApplicable, match="older than the fourth generation"):
        judged(check_id, NONE)


@pytest.mark.parametrize("check_id", MANAGED)
def test_nothing_is_asked_of_hosts_without_a_fabric_of_their_own(check_id: str) -> None:
    alone = healthy_gpus()  # an H200 in a guest: state "not supported"
    with pytest.raises(NotApplicable, match="no NVSwitch"):
        judged(check_id, NONE, host=host_with(), gpus=alone)
    rack = in_state(FabricState.COMPLETED, device_id=0x2941, name="NVIDIA GB200")
    if check_id != "fabric.not-completed":
        with pytest.raises(NotApplicable, match="switch trays"):
            judged(check_id, NONE, host=host_with(), gpus=rack)


def test_two_real_h200_of_a_guest_are_in_a_fabric_that_is_managed_outside() -> None:
    gpus = Gpus.parse(evidence({NVML: H200["nvml, two GPUs"]}))
    assert [sum(gpu.nvlinks) for gpu in gpus.gpus] == [18, 18]
    guest = host_with(pci_gpu(0), pci_gpu(1), virtualization="kvm")
    untried = replace(tried(), started=False)
    for check_id in MANAGED:
        if check_id != "fabric.not-completed":
            with pytest.raises(NotApplicable, match="managed outside"):
                found(check_id, guest, gpus, NONE, untried)
    assert found("fabric.not-completed", guest, gpus) == []
    assert found("fabric.unhealthy", gpus) == []
    assert found("gpu.nvlink-down", gpus) == []


def test_a_guest_whose_gpus_wait_for_the_fabric_is_told_so() -> None:
    guest = host_with(virtualization="kvm")
    (finding,) = found("fabric.not-completed", guest, in_state(FabricState.IN_PROGRESS))
    assert "in progress" in finding.message


def test_a_fabric_that_took_every_gpu_in_is_up_without_a_unit() -> None:
    untried = replace(tried(), started=False)
    with pytest.raises(NotApplicable, match="taken into the fabric"):
        found(
            "fabric.manager-not-running", host_with(pci_gpu(), SWITCH), in_state(FabricState.COMPLETED), NONE, untried
        )


@pytest.mark.parametrize("check_id", [check_id for check_id in MANAGED if check_id != "fabric.not-completed"])
def test_where_cuda_starts_the_fabric_is_up_whoever_manages_it(check_id: str) -> None:
    with pytest.raises(NotApplicable, match="CUDA has started"):
        found(check_id, host_with(pci_gpu(), SWITCH), healthy_gpus(), NONE, tried())


def test_what_systemd_does_not_say_is_unknown() -> None:
    unread = fabric(unit=Unreadable("systemctl: not booted with systemd"), version=None)
    with pytest.raises(Unreadable, match="not booted with systemd"):
        judged("fabric.manager-not-installed", unread)


def test_health_is_told_in_words() -> None:
    (finding,) = found("fabric.unhealthy", in_state(FabricState.COMPLETED, health=0b10_10_10_01 | 4 << 8))
    assert "bandwidth is degraded" in finding.message
    assert "a route is unhealthy" not in finding.message
    assert "the configuration is wrong" in finding.message
    assert found("fabric.unhealthy", in_state(FabricState.COMPLETED, health=0b10_10_10_10 | 1 << 8)) == []
    assert found("fabric.unhealthy", in_state(FabricState.COMPLETED)) == []
    (ended,) = found("fabric.unhealthy", in_state(FabricState.COMPLETED, status=999))
    assert "UNKNOWN" in ended.message
    with pytest.raises(NotApplicable):
        found("fabric.unhealthy", healthy_gpus())


def test_a_manager_that_would_not_start_at_the_next_boot() -> None:
    facts = host_with(pci_gpu(), SWITCH), in_state(FabricState.COMPLETED)
    (finding,) = found("fabric.manager-not-enabled", *facts, fabric(unit=replace(RUNNING, enabled="disabled")))
    assert "not enabled" in finding.message
    assert found("fabric.manager-not-enabled", *facts, fabric()) == []


def test_a_failed_manager_that_nothing_needs() -> None:
    (finding,) = found("fabric.manager-not-needed", host_with(), healthy_gpus(), fabric(unit=FAILED))
    assert "nothing here needs it" in finding.message
    switched = host_with(pci_gpu(), SWITCH), in_state(FabricState.NOT_STARTED)
    assert found("fabric.manager-not-needed", *switched, fabric(unit=FAILED)) == []
    with pytest.raises(NotApplicable):
        found("fabric.manager-not-needed", host_with(), healthy_gpus(), fabric())


def test_fatal_switch_errors_once_each() -> None:
    log = (
        "nvidia-nvswitch0: SXid (PCI:0000:08:00.0): 24007, Fatal, Link 32 sourcetrack timeout error",
        "nvidia-nvswitch0: SXid (PCI:0000:08:00.0): 24007, Fatal, Link 33 sourcetrack timeout error",
        "nvidia-nvswitch0: SXid (PCI:0000:08:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    )
    (finding,) = found("fabric.switch-errors", host_with(pci_gpu(), SWITCH, kernel_log=log))
    assert "SXid 24007" in finding.message
    assert found("fabric.switch-errors", host_with(pci_gpu(), SWITCH)) == []
    with pytest.raises(NotApplicable):
        found("fabric.switch-errors", host_with())


def test_every_check_of_the_fabric_is_tested_here() -> None:
    tested = {
        *MANAGED,
        *("fabric.unhealthy", "fabric.manager-not-enabled", "fabric.manager-not-needed", "fabric.switch-errors"),
    }
    assert {check_id for check_id in by_id() if check_id.startswith("fabric.")} == tested


def test_cuda_that_was_not_tried_does_not_stand_for_the_fabric() -> None:
    untried: Cuda = replace(tried(), started=False)
    (finding,) = found("fabric.manager-not-installed", host_with(pci_gpu(), SWITCH), healthy_gpus(), NONE, untried)
    assert finding.message
