"""Device nodes, NVML and nvidia-smi: what is there is not missed, and what has no meaning is not judged."""

from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.facts.driver import Smi
from tests.checks.driver_faults import judged
from tests.facts.builders_driver import NODES, healthy_driver, no_driver
from tests.facts.builders_host import healthy_host

FAILING = Smi("/usr/bin/nvidia-smi", 9, "NVIDIA-SMI has failed", "", "")


def test_where_no_node_is_missing_nvidia_smi_failed_for_another_reason() -> None:
    assert judged("driver.device-nodes-missing", healthy_driver(smi=FAILING)) == []


def test_a_container_need_not_have_every_node() -> None:
    with pytest.raises(NotApplicable, match="those files that it may use"):
        judged(
            "driver.device-nodes-missing",
            healthy_driver(nodes=(), smi=FAILING),
            healthy_host(virtualization="container"),
        )


@pytest.mark.parametrize(
    "check_id", ["driver.device-nodes-missing", "driver.device-node-stale", "driver.uvm-loads-late"]
)
def test_without_the_module_there_is_no_node_to_judge(check_id: str) -> None:
    with pytest.raises(NotApplicable):
        judged(check_id, no_driver(modprobe_helper=True))


def test_uvm_is_one_finding_with_the_helper_or_without() -> None:
    missing: dict[str, Any] = {"majors": {"nvidia": 195}, "nodes": NODES[:2]}
    assert judged("driver.uvm-not-ready", healthy_driver(**missing)) == []
    assert judged("driver.uvm-loads-late", healthy_driver(**missing, modprobe_helper=False)) == []
    (message,) = judged("driver.uvm-loads-late", healthy_driver(nodes=(*NODES[:2], NODES[3])))
    assert "its device file is missing" in message


def test_nodes_that_nvidia_smi_just_opened_are_there() -> None:
    assert judged("driver.device-nodes-missing", healthy_driver(nodes=())) == []


@pytest.mark.parametrize("status", [2, 3, 4, 6, 8, 9, 10, 12, 13, 15, 255])
def test_every_documented_status_of_nvidia_smi_is_explained(status: int) -> None:
    (message,) = judged("driver.nvidia-smi-fails", healthy_driver(smi=Smi("/usr/bin/nvidia-smi", status, "", "", "")))
    assert f"it ended with {status}: " in message
    assert "not documented" not in message


def test_a_corrupt_inforom_is_left_to_its_own_check() -> None:
    assert judged("driver.nvidia-smi-fails", healthy_driver(smi=Smi("/usr/bin/nvidia-smi", 14, "", "", ""))) == []
