"""Each check of the driver fires on its own fault, and is silent on drivers that are fine or merely different."""

import contextlib
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Smi
from lpxdoctor.facts.driver_log import Complaint
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.libraries import Libraries
from lpxdoctor.facts.modprobe import CommandLine
from lpxdoctor.facts.modules import Initramfs
from lpxdoctor.facts.packages import Automatic
from tests.checks.driver_faults import (
    BLACKWELL,
    CHANGED,
    COMPAT,
    GPU,
    NEEDS_OPEN,
    NO_DEVICES,
    STUB,
    VOLTA,
    judged,
)
from tests.checks.judging import by_id, found
from tests.checks.test_told import TOLD
from tests.facts.builders_boot import NOUVEAU_KO, healthy_boot, image, kernel, without_nvidia
from tests.facts.builders_driver import LIB, PACKAGES, healthy_driver, libraries, no_driver
from tests.facts.builders_gpu import pci_gpu
from tests.facts.builders_host import healthy_host, two_gpus


@pytest.mark.parametrize("check_id", CHANGED)
def test_it_fires_on_its_own_fault(check_id: str) -> None:
    driver, others, words = CHANGED[check_id]
    messages = judged(check_id, driver, *others)
    assert any(words in message for message in messages), messages


@pytest.mark.parametrize("check_id", [*CHANGED, "driver.not-the-expected-version"])
def test_it_is_silent_on_a_healthy_driver(check_id: str) -> None:
    with contextlib.suppress(NotApplicable):
        assert judged(check_id) == []


@pytest.mark.parametrize("check_id", CHANGED)
def test_it_is_silent_on_other_healthy_drivers(check_id: str) -> None:
    """Eight GPUs in a container, a proprietary module on Turing, an installation without any package."""
    container = healthy_host(pci=two_gpus(), virtualization="container")
    inside = healthy_driver(packages=(), automatic=Automatic(""), modprobe_helper=False)
    turing = healthy_host(pci=(pci_gpu(device=0x1EB8),))
    outside = healthy_boot(outside="this is a container")
    with contextlib.suppress(NotApplicable):
        assert judged(check_id, container, inside, outside) == []
    with contextlib.suppress(NotApplicable):
        assert judged(check_id, turing, healthy_driver(open_module=False)) == []


def test_every_check_of_the_driver_is_tested() -> None:
    told = {check_id for check_id in TOLD if check_id.startswith("driver.")}
    tested = {*CHANGED, "driver.not-the-expected-version", "driver.firmware-missing", *told}
    assert {check_id for check_id in by_id() if check_id.startswith("driver.")} == tested


@pytest.mark.parametrize(
    "something",
    [
        {"loaded": "580.95.05"},
        {"libraries": libraries()},
        {"packages": PACKAGES},
        {"smi": Smi("/usr/bin/nvidia-smi", 9, "", "", "")},
        {"libraries": Libraries((), ((f"{LIB}/libcuda.so.1", f"{LIB}/libcuda.so.580.95.05"),))},
    ],
)
def test_half_a_driver_is_not_no_driver(something: dict[str, Any]) -> None:
    assert judged("driver.not-installed", no_driver(**something), healthy_boot(kernels=(without_nvidia(),))) == []


def test_a_cuda_toolkit_is_no_driver() -> None:
    toolkit = Libraries((), ((STUB.path, STUB.real), (COMPAT.path, COMPAT.real)))
    assert judged("driver.not-installed", no_driver(libraries=toolkit), healthy_boot(kernels=(without_nvidia(),))) != []


def test_a_module_on_disk_is_not_no_driver() -> None:
    assert judged("driver.not-installed", no_driver(), healthy_boot(kernels=(kernel(),))) == []


def test_nouveaus_finding_shows_all_four_places() -> None:
    host: Host = healthy_host(pci=(pci_gpu(driver="nouveau"),))
    boot: Boot = healthy_boot(settings=(), effective=(), initramfs=(image(unread="Permission denied"),))
    (finding,) = found("driver.nouveau-bound", host, boot)
    assert {seen.what: seen.value for seen in finding.seen} == {
        f"driver of {GPU}": "nouveau",
        "modprobe": "does not block it",
        "kernel command line": "does not block it",
        "initramfs, next boot": f"not known: {image().path}: Permission denied",
    }


@pytest.mark.parametrize(
    ("initramfs", "words"),
    [
        (image(path=""), "none"),
        (image(), f"{image().path} does not hold nouveau, blocked there by blacklist nouveau in etc/modprobe.d/"),
        (image(modules=(NOUVEAU_KO,), settings=()), f"{image().path} holds nouveau, blocked there by nothing"),
    ],
)
def test_nouveaus_finding_shows_what_the_initramfs_does(initramfs: Initramfs, words: str) -> None:
    host = healthy_host(pci=(pci_gpu(driver="nouveau"),))
    (finding,) = found("driver.nouveau-bound", host, healthy_boot(initramfs=(initramfs,)))
    assert finding.seen[-1].value.startswith(words)


def test_nouveaus_finding_tells_a_parameter_that_works_from_ones_that_do_not() -> None:
    line = CommandLine("ro nouveau.modeset=0 rd.driver.blacklist=nouveau nouveau.blacklist=1")
    host = healthy_host(pci=(pci_gpu(driver="nouveau"),))
    (finding,) = found("driver.nouveau-bound", host, healthy_boot(command_line=line))
    (shown,) = (seen.value for seen in finding.seen if seen.what == "kernel command line")
    assert shown == (
        "blocks it: nouveau.modeset=0; rd.driver.blacklist=nouveau holds only inside a dracut initramfs; "
        "nouveau.blacklist=1 has no effect"
    )


def test_some_gpus_given_away_is_a_choice() -> None:
    assert judged("driver.gpu-owned-by-another", healthy_host(pci=(pci_gpu(0), pci_gpu(1, driver="vfio-pci")))) == []


def test_all_gpus_given_away_is_no_choice() -> None:
    host = healthy_host(pci=two_gpus(driver="vfio-pci"))
    assert len(judged("driver.gpu-owned-by-another", host)) == 2
    assert judged("driver.gpu-given-away", host) == []


@pytest.mark.parametrize(
    ("opened", "device", "fires"),
    [
        (True, BLACKWELL, False),
        (False, BLACKWELL, True),
        (True, VOLTA, True),
        (False, VOLTA, False),
        (True, 0x2335, False),
        (False, 0x2335, False),
        (False, 0xFFFF, False),  # newer than the table: unknown, never guessed
    ],
)
def test_the_flavour_is_judged_by_generation(opened: bool, device: int, fires: bool) -> None:
    host = healthy_host(pci=(pci_gpu(device=device),))
    assert bool(judged("driver.wrong-module-flavour", healthy_driver(open_module=opened), host, NO_DEVICES)) == fires


def test_the_kernels_own_word_on_the_flavour_counts_for_an_unknown_gpu() -> None:
    driver = healthy_driver(open_module=False, complaints=(NEEDS_OPEN,))
    host = healthy_host(pci=(pci_gpu(device=0xFFFF),))
    (message,) = judged("driver.wrong-module-flavour", driver, host, NO_DEVICES)
    assert "10de:ffff needs the open one" in message


def test_a_gpu_that_failed_for_another_reason_has_the_right_flavour() -> None:
    driver = healthy_driver(complaints=(Complaint("not initialised", "RmInitAdapter failed!", GPU),))
    assert judged("driver.wrong-module-flavour", driver, NO_DEVICES) == []


def test_a_gpu_that_nvml_opens_has_the_right_flavour() -> None:
    host = healthy_host(pci=(pci_gpu(device=BLACKWELL),))
    assert judged("driver.wrong-module-flavour", healthy_driver(open_module=False), host) == []


def test_a_module_that_no_file_shows_but_nvml_uses_is_loaded() -> None:
    with pytest.raises(NotApplicable, match="NVML opens a GPU"):
        judged("driver.module-not-loaded", healthy_driver(loaded=""))


def test_without_the_kernel_log_the_reason_is_missing_but_not_the_finding() -> None:
    closed: Any = Unreadable("dmesg: Operation not permitted")
    (message,) = judged("driver.module-not-loaded", healthy_driver(loaded="", complaints=closed), NO_DEVICES)
    assert "the kernel log gives no reason" in message


@pytest.mark.parametrize(
    ("check_id", "facts", "reason"),
    [
        ("driver.nvidia-smi-fails", no_driver(), "nvidia-smi is not installed"),
        ("driver.persistence-refused-by-unit", no_driver(), "no unit"),
        ("driver.packages-not-held", healthy_driver(packages=()), "not installed by packages"),
        ("driver.packages-not-held", healthy_driver(automatic=Automatic("")), "nothing upgrades"),
        ("driver.libraries-missing", healthy_driver(loaded=""), "no module is loaded"),
        ("driver.library-mismatch", healthy_driver(loaded=""), "no module is loaded"),
        ("driver.module-waits-for-restart", healthy_boot(outside="a container"), "a container"),
    ],
)
def test_a_check_without_a_meaning_says_why(check_id: str, facts: Any, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        judged(check_id, facts)
