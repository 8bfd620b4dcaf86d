"""A healthy boot chain as a value, for tests to change."""

from dataclasses import replace
from typing import Any

from lpxdoctor.facts.boot import Boot
from lpxdoctor.facts.bootloader import NextBoot
from lpxdoctor.facts.modprobe import CommandLine, Setting
from lpxdoctor.facts.modules import DkmsSource, Initramfs, Kernel, Module
from lpxdoctor.facts.signing import Enforcement, Keys
from tests.facts.given import only

RUNNING, NEWER = "6.8.0-87-generic", "6.8.0-90-generic"
BLACKLIST = Setting("blacklist", "nouveau", "", "/etc/modprobe.d/blacklist-nouveau.conf:1")
NOUVEAU_KO = "usr/lib/modules/6.8.0-87-generic/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst"
SECURE = Enforcement(secure_boot=True, lockdown="integrity", sig_enforce=False)
OPEN_LICENSE = "Dual MIT/GPL"


def kernel(release: str = RUNNING, **changes: Any) -> Kernel:
    """Return a kernel with headers, nouveau and NVIDIA's module."""
    modules = ("kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst", "updates/dkms/nvidia.ko.zst")
    return replace(Kernel(release, headers=True, modules=modules), **changes)


def without_nvidia(release: str = RUNNING, **changes: Any) -> Kernel:
    """Return a kernel that has nouveau only."""
    return kernel(release, modules=("kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst",), **changes)


def module(release: str = RUNNING, **changes: Any) -> Module:
    """Return the open module 580.95.05, signed by this machine's enrolled key."""
    path = f"/lib/modules/{release}/updates/dkms/nvidia.ko.zst"
    return replace(
        Module(path, "580.95.05", OPEN_LICENSE, "gpu-12 Secure Boot Module Signature key", "AB:CD"), **changes
    )


def image(release: str = RUNNING, **changes: Any) -> Initramfs:
    """Return an initramfs that holds no GPU module and the blacklist."""
    inside = (replace(BLACKLIST, where="etc/modprobe.d/blacklist-nouveau.conf:1"),)
    return replace(Initramfs(release, f"/boot/initrd.img-{release}", (), inside, (), "", ""), **changes)


def dkms(*built: str, log: tuple[str, ...] = ()) -> DkmsSource:
    """Return DKMS's source of 580.95.05."""
    return DkmsSource("nvidia", "580.95.05", built, log)


def healthy_boot(**changes: Any) -> Boot:
    """Return the boot chain of a server whose next boot starts the kernel that runs."""
    good: dict[str, Any] = {
        "outside": "",
        "running": RUNNING,
        "command_line": CommandLine("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet"),
        "kernels": (kernel(),),
        "modules": {RUNNING: (module(),)},
        "dkms": (dkms(RUNNING),),
        "settings": (BLACKLIST,),
        "effective": (BLACKLIST,),
        "initramfs": (image(),),
        "next": NextBoot(RUNNING, "root=/dev/sda1 ro quiet", "GRUB will start 'Ubuntu'"),
        "enforcement": Enforcement(secure_boot=False, lockdown="none", sig_enforce=False),
        "keys": Keys(frozenset({"Canonical Ltd. Kernel Module Signing"}), frozenset({(module().signer, "abcd")})),
        "written": {"/etc/modprobe.d/blacklist-nouveau.conf": 1000, f"/boot/initrd.img-{RUNNING}": 2000},
    }
    return only(Boot, **{**good, **changes})


def next_kernel(**changes: Any) -> Boot:
    """Return a boot chain whose next boot starts a newer kernel, that has all it needs unless changed."""
    newer: dict[str, Any] = {
        "kernels": (kernel(NEWER), kernel()),
        "modules": {NEWER: (module(NEWER),), RUNNING: (module(),)},
        "initramfs": (image(NEWER), image()),
        "next": NextBoot(NEWER, "root=/dev/sda1 ro quiet", "GRUB will start 'Ubuntu'"),
    }
    return healthy_boot(**{**newer, **changes})
