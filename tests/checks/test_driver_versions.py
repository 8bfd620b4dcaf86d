"""Versions and packages of the driver: which differ, what a reboot would bring, and what may move them."""

from dataclasses import replace

import msgspec
import pytest

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.driver_log import Complaint
from lpxdoctor.facts.libraries import Libraries
from lpxdoctor.facts.packages import Automatic, Change, Package
from tests.checks.driver_faults import (
    CHANGED,
    COMPAT,
    MISMATCH,
    NEW_LIBRARIES,
    judged,
)
from tests.checks.judging import bundled_policy, found
from tests.facts.builders_boot import RUNNING, healthy_boot, module
from tests.facts.builders_driver import LIB, PACKAGES, healthy_driver, libraries
from tests.facts.builders_gpu import pci_gpu
from tests.facts.builders_host import healthy_host

MOVED = (
    "2026-11-28 06:12:03 /usr/bin/unattended-upgrade: libnvidia-compute-580-server:amd64 580.95.05-0 -> 580.105.08-0"
)


def test_the_mismatch_shows_every_version_and_what_a_reboot_would_bring() -> None:
    change = Change(
        "2026-11-28 06:12:03",
        "/usr/bin/unattended-upgrade",
        (("libnvidia-compute-580-server:amd64", "580.95.05-0", "580.105.08-0"),),
    )
    driver = healthy_driver(
        libraries=NEW_LIBRARIES,
        last_change=change,
        packages=(*PACKAGES, Package("nvidia-fabricmanager-580", "580.95.05-1")),
    )
    boot = healthy_boot(modules={RUNNING: (module(version="580.105.08"),)})
    (finding,) = found("driver.library-mismatch", driver, boot)
    assert finding.message.endswith("a reboot loads 580.105.08, which is on disk")
    assert [(seen.what, seen.value) for seen in finding.seen] == [
        ("kernel module, in memory", "580.95.05, open"),
        ("kernel module, on disk", "580.105.08"),
        ("libcuda.so.1", "580.105.08"),
        ("libnvidia-ml.so.1", "580.105.08"),
        ("libnvidia-ptxjitcompiler.so.1", "580.105.08"),
        ("fabric manager", "580.95.05"),
        ("GSP firmware", "580.95.05"),
        ("last upgrade", MOVED),
    ]


def test_a_reboot_that_would_not_help_is_not_promised() -> None:
    (message,) = judged("driver.library-mismatch", healthy_driver(libraries=NEW_LIBRARIES))
    assert "a reboot alone will not do: the module on disk is 580.95.05" in message


def test_two_ways_to_write_a_version_are_one() -> None:
    assert judged("driver.library-mismatch", healthy_driver(loaded="580.95.5")) == []


def test_libraries_without_a_version_in_their_name_are_unknown() -> None:
    named = tuple(replace(each, real=each.path) for each in libraries().taken)
    with pytest.raises(Unreadable, match="do not tell their version"):
        judged("driver.library-mismatch", healthy_driver(libraries=Libraries(named, ())))


def test_libraries_outside_the_loaders_path_are_pointed_at() -> None:
    lying = Libraries((), (("/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.580.95.05"),))
    messages = judged("driver.libraries-missing", healthy_driver(libraries=lying))
    assert "libcuda.so.1 /usr/local/nvidia/lib64/libcuda.so.1 exists, where the loader does not look" in messages


def test_an_api_mismatch_of_a_former_module_is_history() -> None:
    old = Complaint("api mismatch", MISMATCH.replace("580.95.05", "560.35.03"), "")
    assert judged("driver.client-of-other-version", healthy_driver(complaints=(old,))) == []


def test_two_versions_on_the_loaders_path_are_two_installs() -> None:
    both = replace(
        libraries(), files=(*libraries().files, (f"{LIB}/libcuda.so.570.86.15", f"{LIB}/libcuda.so.570.86.15"))
    )
    (message,) = judged("driver.two-installs", healthy_driver(libraries=both))
    assert "libraries of several versions" in message


def test_fabric_manager_counts_only_beside_nvswitches() -> None:
    driver = healthy_driver(packages=(*PACKAGES, Package("nvidia-fabricmanager-580", "580.65.06-1")))
    assert judged("driver.packages-mixed", driver) == []
    switch = replace(pci_gpu(7), device=0x22A3, class_code=0x068000)
    assert judged("driver.packages-mixed", driver, healthy_host(pci=(pci_gpu(), switch))) != []


@pytest.mark.parametrize(("pattern", "left"), [("libnvidia-", 1), ("(lib)?nvidia", 0), ("nvidia-fs", 2)])
def test_a_blacklist_of_unattended_upgrades_holds_what_it_matches(pattern: str, left: int) -> None:
    loose = tuple(replace(package, held=False) for package in PACKAGES)
    driver = healthy_driver(packages=loose, automatic=Automatic("unattended-upgrades", "50unattended", (pattern,)))
    found_ = found("driver.packages-not-held", driver)
    assert [f"{left} of 2" in finding.message for finding in found_] == ([True] if left else [])


def test_the_packages_to_hold_are_spelt_out() -> None:
    (finding,) = found("driver.packages-not-held", CHANGED["driver.packages-not-held"][0])
    assert finding.do == ("sudo apt-mark hold libnvidia-compute-580-server:amd64 nvidia-dkms-580-server-open",)


@pytest.mark.parametrize(
    ("expected", "fires"), [("580", False), ("580.95.05", False), ("580.105.08", True), ("575", True), ("58", True)]
)
def test_the_version_is_compared_with_the_sites(expected: str, fires: bool) -> None:
    expect = msgspec.structs.replace(bundled_policy().expect, driver=expected)
    policy = msgspec.structs.replace(bundled_policy(), expect=expect)
    assert bool(judged("driver.not-the-expected-version", policy)) == fires


def test_in_a_container_the_module_is_the_hosts_to_put_right() -> None:
    driver, outside = healthy_driver(libraries=NEW_LIBRARIES), healthy_boot(outside="this is a container")
    (message,) = judged("driver.library-mismatch", driver, outside)
    assert message.endswith("the module is the host's, so put it right there")


def test_the_versions_of_compat_libraries_are_no_mismatch() -> None:
    assert judged("driver.library-mismatch", healthy_driver(libraries=libraries("580.95.05", COMPAT))) == []
