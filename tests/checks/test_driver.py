"""Each check of the driver fires on its own fault, and is silent on drivers that are fine or merely different."""

import contextlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.driver import Daemon, Driver, Smi
from lpxdoctor.facts.driver_log import Complaint
from lpxdoctor.facts.environment import Variable
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.host import Host
from lpxdoctor.facts.libraries import Libraries
from lpxdoctor.facts.modprobe import CommandLine
from lpxdoctor.facts.modules import Initramfs
from lpxdoctor.facts.nvml import NvmlError
from lpxdoctor.facts.packages import Automatic, Change, Package
from tests.checks.judging import bundled_policy, by_id, found
from tests.facts.builders_boot import NOUVEAU_KO, RUNNING, healthy_boot, image, kernel, module, without_nvidia
from tests.facts.builders_driver import LIB, NODES, PACKAGES, healthy_driver, libraries, library, no_driver, node
from tests.facts.builders_gpu import healthy_gpus, pci_gpu
from tests.facts.builders_host import healthy_host, two_gpus
from tests.facts.given import only

GPU = "0000:01:00.0"
NO_DEVICES = only(Gpus, error=None, gpus=(), library="", driver_version="580.95.05")
NEW_LIBRARIES = libraries("580.105.08")
STUB = library(
    "libcuda.so.1", path="/usr/local/cuda/lib64/stubs/libcuda.so.1", real="/usr/local/cuda/lib64/stubs/libcuda.so"
)
COMPAT = library(
    "libcuda.so.1",
    real="/usr/local/cuda-13.0/compat/libcuda.so.580.65.06",
    path="/usr/local/cuda-13.0/compat/libcuda.so.1",
)
NEEDS_OPEN = Complaint("needs open", "NVRM: ... requires use of the NVIDIA open kernel modules.", GPU)
REJECTED = Complaint("signature", "Loading of unsigned module is rejected", "")
MISMATCH = "NVRM: API mismatch: the client has the version 570.86.15, but this kernel module has the version 580.95.05."
MOVED = (
    "2026-11-28 06:12:03 /usr/bin/unattended-upgrade: libnvidia-compute-580-server:amd64 580.95.05-0 -> 580.105.08-0"
)
BLACKWELL, VOLTA = 0x2BB5, 0x1DB6

# A line a check: the changed driver, what else is changed, and what the finding must say.
CHANGED: dict[str, tuple[Driver, tuple[Any, ...], str]] = {
    "driver.not-installed": (no_driver(), (healthy_boot(kernels=(without_nvidia(),)),), "no module, library, package"),
    "driver.nouveau-bound": (no_driver(), (healthy_host(pci=(pci_gpu(driver="nouveau"),)),), "bound to 1 of 1 GPUs"),
    "driver.nouveau-loaded": (healthy_driver(in_memory=frozenset({"nvidia", "nouveau"})), (), "it is in memory"),
    "driver.gpu-owned-by-another": (healthy_driver(), (healthy_host(pci=(pci_gpu(driver="nvidiafb"),)),), "nvidiafb"),
    "driver.gpu-given-away": (
        healthy_driver(),
        (healthy_host(pci=(pci_gpu(0), pci_gpu(1, driver="vfio-pci"))),),
        "1 of 2 are bound so",
    ),
    "driver.module-not-loaded": (
        healthy_driver(loaded="", complaints=(REJECTED,)),
        (NO_DEVICES,),
        "the kernel says why: Loading of unsigned module is rejected",
    ),
    "driver.wrong-module-flavour": (
        healthy_driver(open_module=False),
        (healthy_host(pci=(pci_gpu(device=BLACKWELL),)), NO_DEVICES),
        "needs the open one",
    ),
    "driver.libraries-missing": (
        healthy_driver(libraries=Libraries(libraries().taken[:1], ((f"{LIB}/libcuda.so.1", f"{LIB}/libcuda.so.580"),))),
        (),
        "it is in no usual directory",
    ),
    "driver.libcuda-is-a-stub": (healthy_driver(libraries=libraries("580.95.05", STUB)), (), "stubs/libcuda.so"),
    "driver.compat-libcuda-on-host": (
        healthy_driver(libraries=libraries("580.95.05", COMPAT)),
        (),
        "580.65.06 of cuda-compat",
    ),
    "driver.library-mismatch": (
        healthy_driver(libraries=NEW_LIBRARIES),
        (),
        "the module in memory is 580.95.05, the libraries are 580.105.08",
    ),
    "driver.module-waits-for-restart": (
        healthy_driver(),
        (healthy_boot(modules={RUNNING: (module(version="580.105.08"),)}),),
        "580.95.05 runs, 580.105.08 is on disk",
    ),
    "driver.client-of-other-version": (
        healthy_driver(complaints=(Complaint("api mismatch", MISMATCH, ""),)),
        (),
        "its libraries were 570.86.15",
    ),
    "driver.two-installs": (healthy_driver(runfile=True), (), "both the .run installer and packages"),
    "driver.packages-mixed": (
        healthy_driver(packages=(*PACKAGES, Package("nvidia-utils-580-server", "580.105.08-0ubuntu0.24.04.1"))),
        (),
        "2 packages are 580.95.05, 1 are not",
    ),
    "driver.packages-not-held": (
        healthy_driver(packages=tuple(replace(package, held=False) for package in PACKAGES)),
        (),
        "unattended-upgrades is on, and 2 of 2",
    ),
    "driver.harmful-environment": (
        healthy_driver(variables=(Variable("CUDA_LAUNCH_BLOCKING", "1", "/etc/environment:3"),)),
        (),
        "CUDA_LAUNCH_BLOCKING=1 makes every kernel launch wait",
    ),
    "driver.device-nodes-missing": (
        healthy_driver(nodes=NODES[1:], smi=Smi("/usr/bin/nvidia-smi", 9, "NVIDIA-SMI has failed", "", "")),
        (),
        "/dev/nvidia0 should be there",
    ),
    "driver.device-node-stale": (
        healthy_driver(nodes=(*NODES[:2], node("/dev/nvidia-uvm", 508, 0))),
        (),
        "its numbers are 508:0, the driver's are 510:0",
    ),
    "driver.device-nodes-closed": (
        healthy_driver(nodes=(replace(NODES[0], mode=0o660, gid=44), *NODES[1:])),
        (),
        "1 of 4 files are closed",
    ),
    "driver.uvm-not-ready": (
        healthy_driver(majors={"nvidia": 195}, nodes=NODES[:2], modprobe_helper=False),
        (),
        "the module is not loaded",
    ),
    "driver.uvm-loads-late": (healthy_driver(majors={"nvidia": 195}, nodes=NODES[:2]), (), "the module is not loaded"),
    "driver.nvml-fails": (
        healthy_driver(),
        (healthy_gpus(error=NvmlError.of("nvmlInit_v2", 9)),),
        "nvmlInit_v2: DRIVER_NOT_LOADED: the kernel module is not loaded",
    ),
    "driver.nvidia-smi-hangs": (
        healthy_driver(smi=Smi("/usr/bin/nvidia-smi", None, "", "", "process 99 in uninterruptible sleep (D)")),
        (),
        "process 99",
    ),
    "driver.nvidia-smi-fails": (
        healthy_driver(smi=Smi("/usr/bin/nvidia-smi", 15, "Unable to determine the device handle", "", "")),
        (),
        "it ended with 15: the GPU has fallen off the bus",
    ),
    "driver.persistence-refused-by-unit": (
        healthy_driver(persistenced=Daemon(True, True, "/usr/bin/nvidia-persistenced --no-persistence-mode --verbose")),
        (),
        "--no-persistence-mode",
    ),
}


def given(*others: Any) -> dict[type, Any]:
    """Return healthy facts, those given instead of their kind."""
    facts: tuple[Any, ...] = (healthy_host(), healthy_boot(), healthy_driver(), healthy_gpus(), *others)
    return {type(fact): fact for fact in facts}


def judged(check_id: str, *others: Any) -> list[str]:
    return [f"{f.subject} {f.message}" for f in found(check_id, *given(*others).values())]


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
    tested = {*CHANGED, "driver.not-the-expected-version"}
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


@pytest.mark.parametrize(
    ("expected", "fires"), [("580", False), ("580.95.05", False), ("580.105.08", True), ("575", True), ("58", True)]
)
def test_the_version_is_compared_with_the_sites(expected: str, fires: bool) -> None:
    expect = msgspec.structs.replace(bundled_policy().expect, driver=expected)
    policy = msgspec.structs.replace(bundled_policy(), expect=expect)
    assert bool(judged("driver.not-the-expected-version", policy)) == fires


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


def test_in_a_container_the_module_is_the_hosts_to_put_right() -> None:
    driver, outside = healthy_driver(libraries=NEW_LIBRARIES), healthy_boot(outside="this is a container")
    (message,) = judged("driver.library-mismatch", driver, outside)
    assert message.endswith("the module is the host's, so put it right there")
