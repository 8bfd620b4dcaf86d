"""Each check of the boot chain fires on its own fault, and is silent on hosts that boot well."""

from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.check import NotApplicable
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.bootloader import NextBoot
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.modprobe import CommandLine, Setting
from lpxdoctor.facts.signing import Keys
from tests.checks.judging import by_id, found
from tests.facts.builders_boot import (
    BLACKLIST,
    NEWER,
    NOUVEAU_KO,
    RUNNING,
    SECURE,
    dkms,
    healthy_boot,
    image,
    kernel,
    module,
    next_kernel,
    without_nvidia,
)
from tests.facts.builders_driver import healthy_driver, no_driver
from tests.facts.builders_host import healthy_host

NVIDIA_OFF = Setting("install", "nvidia", "/bin/false", "/etc/modprobe.d/vfio.conf:2")
NO_KEYS = Keys(frozenset({"Canonical Ltd. Kernel Module Signing"}), frozenset())
UNLOADED = healthy_driver(loaded="")
REJECTED = "[   12.1] Loading of module with unavailable key is rejected"
FAILED = (
    f"DKMS make.log for nvidia-580.95.05 for kernel {RUNNING} (x86_64)",
    "warning: the compiler differs from the one used to build the kernel",
    "  The kernel was built by: x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0) 13.3.0",
    "  You are using:           cc (Ubuntu 11.4.0) 11.4.0",
    "cc1: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'",
)
BARE = without_nvidia()
WITHOUT = {"kernels": (BARE,), "modules": {RUNNING: ()}, "dkms": (dkms(),)}
STALE = image(modules=(NOUVEAU_KO,), settings=())
NVIDIA_INSIDE = ("usr/lib/modules/6.8.0-87-generic/updates/dkms/nvidia.ko.zst",)

# A line a check: the driver beside it, what is changed in a healthy boot chain, and what the finding must say.
CHANGED: dict[str, tuple[Driver, dict[str, Any], str]] = {
    "boot.nvidia-blacklisted": (UNLOADED, {"settings": (BLACKLIST, NVIDIA_OFF), "effective": None}, "vfio.conf says"),
    "boot.nvidia-blacklist-left": (
        healthy_driver(),
        {"command_line": CommandLine("ro modprobe.blacklist=nvidia")},
        "started with modprobe.blacklist=nvidia",
    ),
    "boot.modules-of-running-kernel-gone": (UNLOADED, {"kernels": (kernel(NEWER),)}, f"has only {NEWER}"),
    "boot.headers-missing": (UNLOADED, {**WITHOUT, "kernels": (replace(BARE, headers=False),)}, "has no headers"),
    "boot.dkms-build-failed": (UNLOADED, {**WITHOUT, "dkms": (dkms(log=FAILED),)}, "does not compile"),
    "boot.dkms-not-built": (UNLOADED, WITHOUT, "is not built for"),
    "boot.module-missing": (
        UNLOADED,
        {**WITHOUT, "dkms": (), "kernels": (BARE, kernel("6.8.0-60-generic"))},
        "there is one for 6.8.0-60-generic",
    ),
    "boot.signature-refused": (UNLOADED, {"enforcement": SECURE, "keys": NO_KEYS}, "whose key is not enrolled"),
    "boot.nouveau-not-blocked": (healthy_driver(), {"settings": (), "effective": ()}, "neither modprobe's settings"),
    "boot.nouveau-blocked-by-command-line-only": (
        healthy_driver(),
        {"settings": (), "effective": (), "command_line": CommandLine("ro nouveau.modeset=0")},
        "nouveau.modeset=0",
    ),
    "boot.parameter-without-effect": (
        healthy_driver(),
        {"command_line": CommandLine("ro nouveau.blacklist=1")},
        "nouveau.blacklist=1 does not keep",
    ),
    "boot.module-not-rebuilt": (
        healthy_driver(),
        {"dkms": (), "modules": {RUNNING: (module(path=f"/lib/modules/{RUNNING}/kernel/drivers/video/nvidia.ko"),)}},
        "belongs to no package",
    ),
    "boot.initramfs-allows-nouveau": (
        healthy_driver(),
        {"initramfs": (STALE,), "written": {"/etc/modprobe.d/blacklist-nouveau.conf": 3000, STALE.path: 2000}},
        "made before the blacklist was written",
    ),
    "boot.initramfs-older-than-settings": (
        healthy_driver(),
        {
            "initramfs": (image(modules=NVIDIA_INSIDE),),
            "written": {"/etc/modprobe.d/blacklist-nouveau.conf": 3000, image().path: 2000},
        },
        "blacklist-nouveau.conf is newer",
    ),
    "boot.initramfs-has-other-driver": (
        healthy_driver(),
        {"initramfs": (image(modules=NVIDIA_INSIDE, nvidia_version="570.124.06"),)},
        "it holds 570.124.06, the libraries are 580.95.05",
    ),
    "boot.next-kernel-without-module": (
        healthy_driver(),
        {"kernels": (without_nvidia(NEWER), kernel()), "next": NextBoot(NEWER, None, "it is the newest")},
        f"kernel {NEWER} starts next and has none",
    ),
    "boot.next-module-refused": (
        healthy_driver(),
        {
            "kernels": (kernel(NEWER), kernel()),
            "modules": {NEWER: (module(NEWER, signer="", key=""),), RUNNING: (module(),)},
            "next": NextBoot(NEWER, None, "it is the newest"),
            "enforcement": SECURE,
        },
        "it is not signed",
    ),
    "boot.next-driver-differs": (
        healthy_driver(),
        {"modules": {RUNNING: (module(version="580.105.08"),)}},
        "loads module 580.105.08, the libraries are 580.95.05",
    ),
    "boot.next-boot-blocks-nvidia": (
        healthy_driver(),
        {"next": NextBoot(RUNNING, "ro module_blacklist=nvidia,nouveau", "GRUB")},
        "module_blacklist=nvidia",
    ),
}


def judged(check_id: str, driver: Driver, **changes: Any) -> list[str]:
    facts = healthy_host(), healthy_boot(**changes), driver
    return [f"{finding.subject} {finding.message}" for finding in found(check_id, *facts)]


@pytest.mark.parametrize("check_id", CHANGED)
def test_it_fires_on_its_own_fault(check_id: str) -> None:
    driver, changes, words = CHANGED[check_id]
    (message,) = judged(check_id, driver, **changes)
    assert words in message


@pytest.mark.parametrize("check_id", CHANGED)
def test_it_is_silent_on_a_healthy_host_and_before_a_healthy_update(check_id: str) -> None:
    assert judged(check_id, healthy_driver()) == []
    assert found(check_id, healthy_host(), next_kernel(), healthy_driver()) == []


@pytest.mark.parametrize("check_id", CHANGED)
def test_a_system_whose_kernel_comes_from_outside_is_not_judged(check_id: str) -> None:
    with pytest.raises(NotApplicable, match="from outside"):
        judged(check_id, no_driver(), outside="the kernel comes from outside", kernels=())


def test_every_check_of_the_boot_chain_is_tested() -> None:
    assert {check_id for check_id in by_id() if check_id.startswith("boot.")} == set(CHANGED)


def test_a_blacklist_of_nvidia_is_one_finding_loaded_or_not() -> None:
    left = {"settings": (BLACKLIST, NVIDIA_OFF), "effective": None}
    assert judged("boot.nvidia-blacklisted", healthy_driver(), **left) == []
    assert judged("boot.nvidia-blacklist-left", UNLOADED, **left) == []
    assert len(judged("boot.nvidia-blacklist-left", healthy_driver(), **left)) == 1


def test_where_dkms_builds_no_nvidia_module_its_checks_have_no_meaning() -> None:
    with pytest.raises(NotApplicable, match="DKMS does not build"):
        judged("boot.dkms-not-built", UNLOADED, **{**WITHOUT, "dkms": ()})


def test_a_kernel_without_nouveau_needs_no_blacklist() -> None:
    bare = kernel(modules=("updates/dkms/nvidia.ko",))
    with pytest.raises(NotApplicable, match="no installed kernel has the nouveau module"):
        judged("boot.nouveau-not-blocked", healthy_driver(), settings=(), effective=(), kernels=(bare,))


def test_rd_driver_blacklist_alone_is_named_as_not_enough() -> None:
    line = CommandLine("ro rd.driver.blacklist=nouveau")
    changes: dict[str, Any] = {"settings": (), "effective": (), "command_line": line}
    (finding,) = found("boot.nouveau-not-blocked", healthy_boot(**changes))
    assert "rd.driver.blacklist=nouveau" in [seen.value for seen in finding.seen]
    (note,) = judged("boot.parameter-without-effect", healthy_driver(), **changes)
    assert "rd.driver.blacklist=nouveau" in note


def test_rd_driver_blacklist_keeps_nouveau_out_of_the_initramfs() -> None:
    boot = NextBoot(RUNNING, "ro rd.driver.blacklist=nouveau", "GRUB")
    assert judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(STALE,), next=boot) == []


def test_nouveau_in_the_initramfs_is_harmless_where_the_blacklist_is_inside_too() -> None:
    assert judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(image(modules=(NOUVEAU_KO,)),)) == []


def test_an_initramfs_is_called_older_only_where_it_is() -> None:
    """The healthy host's blacklist was written before its initramfs."""
    (message,) = judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(STALE,))
    assert "no setting inside it blocks nouveau" in message
    inside = image(modules=NVIDIA_INSIDE)
    assert judged("boot.initramfs-older-than-settings", healthy_driver(), initramfs=(inside,)) == []


def test_newer_settings_of_other_modules_do_not_make_the_initramfs_old() -> None:
    other = Setting("options", "kvm", "nested=1", "/etc/modprobe.d/kvm.conf:1")
    written = {"/etc/modprobe.d/kvm.conf": 3000, image().path: 2000}
    changes: dict[str, Any] = {"settings": (BLACKLIST, other), "initramfs": (image(modules=NVIDIA_INSIDE),)}
    assert judged("boot.initramfs-older-than-settings", healthy_driver(), **changes, written=written) == []


def test_an_initramfs_without_nouveau_needs_no_blacklist() -> None:
    assert judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(image(settings=()),)) == []


def test_an_initramfs_that_could_not_be_read_is_unknown() -> None:
    closed = image(unread="Permission denied")
    with pytest.raises(Unreadable, match="Permission denied"):
        judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(closed,))


def test_a_kernel_without_an_initramfs_loads_nothing_early() -> None:
    assert judged("boot.initramfs-allows-nouveau", healthy_driver(), initramfs=(image(path=""),)) == []


def test_the_running_module_vouches_for_its_own_signature() -> None:
    changes = {"enforcement": SECURE, "keys": NO_KEYS}
    assert judged("boot.next-module-refused", healthy_driver(), **changes) == []
    (message,) = judged("boot.next-module-refused", healthy_driver(loaded="570.1.1"), **changes)
    assert "is not enrolled" in message


def test_secure_boot_is_not_blamed_while_the_module_runs_or_is_trusted() -> None:
    assert judged("boot.signature-refused", healthy_driver(), enforcement=SECURE, keys=NO_KEYS) == []
    assert judged("boot.signature-refused", UNLOADED, enforcement=SECURE) == []


def test_without_secure_boot_no_signature_is_needed() -> None:
    unsigned = {NEWER: (module(NEWER, signer="", key=""),), RUNNING: (module(),)}
    assert found("boot.next-module-refused", next_kernel(modules=unsigned), healthy_driver()) == []
    assert judged("boot.signature-refused", UNLOADED, keys=NO_KEYS) == []


@pytest.mark.parametrize("module_version", ["", None])
def test_a_next_module_without_a_version_is_compared_with_nothing(module_version: str | None) -> None:
    modules = {RUNNING: () if module_version is None else (module(version=module_version),)}
    assert judged("boot.next-driver-differs", healthy_driver(), modules=modules) == []
    assert judged("boot.next-driver-differs", healthy_driver(libraries=no_driver().libraries)) == []


def test_a_parameter_that_this_boot_has_too_is_no_news() -> None:
    line = "ro module_blacklist=nvidia"
    changes: dict[str, Any] = {"command_line": CommandLine(line), "next": NextBoot(RUNNING, line, "GRUB")}
    assert judged("boot.next-boot-blocks-nvidia", healthy_driver(), **changes) == []


def test_why_the_next_kernels_module_was_not_built_is_shown() -> None:
    log = (FAILED[0].replace(RUNNING, NEWER), *FAILED[1:])
    boot = next_kernel(kernels=(without_nvidia(NEWER), kernel()), dkms=(dkms(RUNNING, log=log), dkms(RUNNING)))
    (finding,) = found("boot.next-kernel-without-module", boot)
    assert [seen.value for seen in finding.seen if seen.what == "build failed"] == [FAILED[-1]]
    assert finding.do == (f"sudo dkms autoinstall -k {NEWER}",)


def test_a_rejected_key_in_the_kernel_log_is_shown() -> None:
    host = healthy_host(kernel_log=(REJECTED,))
    (finding,) = found("boot.signature-refused", host, healthy_boot(enforcement=SECURE), UNLOADED)
    assert REJECTED in [seen.value for seen in finding.seen]


def test_the_compilers_are_quoted_from_the_log() -> None:
    boot = healthy_boot(**{**WITHOUT, "dkms": (dkms(log=FAILED),)})
    (finding,) = found("boot.dkms-build-failed", boot, UNLOADED)
    assert [seen.value for seen in finding.seen] == [line.strip() for line in FAILED[2:]]
    silent = (FAILED[0], "make[1]: Entering directory", "killed")
    (finding,) = found("boot.dkms-build-failed", healthy_boot(**{**WITHOUT, "dkms": (dkms(log=silent),)}), UNLOADED)
    assert [seen.value for seen in finding.seen] == list(silent)


def test_a_build_that_failed_for_another_kernel_is_not_this_ones() -> None:
    log = (FAILED[0].replace(RUNNING, NEWER), *FAILED[1:])
    assert judged("boot.dkms-build-failed", UNLOADED, **{**WITHOUT, "dkms": (dkms(log=log),)}) == []


def test_debians_own_name_of_the_module_is_looked_at_too() -> None:
    left = Setting("blacklist", "nvidia_current", "", "/etc/modprobe.d/old.conf:1")
    (message,) = judged("boot.nvidia-blacklisted", UNLOADED, settings=(BLACKLIST, left), effective=(BLACKLIST, left))
    assert "/etc/modprobe.d/old.conf says: blacklist nvidia_current" in message


def test_what_only_modprobe_knows_counts_and_what_it_denies_does_not() -> None:
    said = (replace(BLACKLIST, where="modprobe --showconfig"),)
    assert judged("boot.nouveau-not-blocked", healthy_driver(), settings=(), effective=said) == []
    assert judged("boot.nouveau-not-blocked", healthy_driver(), effective=()) != []


def test_the_outlook_says_it_in_one_line() -> None:
    assert healthy_boot().outlook == (
        f"kernel {RUNNING} has its NVIDIA module 580.95.05, nouveau stays out, Secure Boot off, lockdown none"
    )
    lost = next_kernel(kernels=(without_nvidia(NEWER), kernel()), initramfs=(replace(STALE, release=NEWER), image()))
    assert lost.outlook.startswith(f"kernel {NEWER} has no NVIDIA module, nouveau may take the GPUs")
    assert healthy_boot(outside="it comes from outside").outlook == ""
