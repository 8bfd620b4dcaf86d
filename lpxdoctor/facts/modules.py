"""What programs/modules.py and programs/initramfs.py print in; kernels with GPU modules, DKMS and initramfs out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.modprobe import Setting, settings

_NVIDIA = re.compile(r"(?:^|/)nvidia(?:-current|-tesla|-legacy)?(?:-open|-\d\w*)*\.ko(?:\.\w+)?$")
_NOUVEAU = re.compile(r"(?:^|/)nouveau\.ko(?:\.\w+)?$")


@dataclass(frozen=True)
class Module:
    """An NVIDIA kernel module on disk."""

    path: str
    version: str
    license: str
    signer: str = ""  # "" where it is not signed
    key: str = ""

    @property
    def open(self) -> bool:
        """Whether it is the open kernel module."""
        return self.license != "NVIDIA"


@dataclass(frozen=True)
class Kernel:
    """An installed kernel: the GPU modules that modprobe finds for it, as paths below its tree."""

    release: str
    headers: bool  # what DKMS builds a module against
    modules: tuple[str, ...]
    builtin: tuple[str, ...] = ()

    @property
    def nvidia(self) -> tuple[str, ...]:
        """NVIDIA's main module; Debian names it nvidia-current."""
        return tuple(path for path in self.modules if _NVIDIA.search(path))

    @property
    def has_nouveau(self) -> bool:
        """Whether it could load nouveau at all: kernels for clouds often cannot."""
        return any(_NOUVEAU.search(path) for path in (*self.modules, *self.builtin))


@dataclass(frozen=True)
class DkmsSource:
    """A version of NVIDIA's module that DKMS builds: for which kernels it did, and the log of a build that failed."""

    name: str
    version: str
    built: tuple[str, ...]
    log: tuple[str, ...]


@dataclass(frozen=True)
class Initramfs:
    """What decides about the driver in one initramfs."""

    release: str
    path: str  # "" where the kernel has none
    modules: tuple[str, ...]
    settings: tuple[Setting, ...]
    command_lines: tuple[str, ...]  # of dracut's cmdline.d
    nvidia_version: str
    unread: str  # why it could not be read, "" where it was

    @property
    def has_nouveau(self) -> bool:
        """Whether nouveau lies in it and can be loaded before the root file system is there."""
        return any(_NOUVEAU.search(path) for path in self.modules)

    @property
    def has_nvidia(self) -> bool:
        """Whether NVIDIA's module lies in it."""
        return any(_NVIDIA.search(path) for path in self.modules)


def kernels(raw: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """Return the installed kernels, newest first; one without modules.dep finds no module."""
    return tuple(
        Kernel(kernel["release"], bool(kernel["headers"]), tuple(kernel["modules"] or ()), tuple(kernel["builtin"]))
        for kernel in raw["kernels"]
    )


def modules(raw: Mapping[str, Any]) -> dict[str, tuple[Module, ...] | Unreadable]:
    """Return {release: NVIDIA's modules on disk, or why they could not be read} of the kernels that were looked at."""
    return {release: _modules(found) for release, found in raw["modinfo"].items()}


def _modules(found: Any) -> tuple[Module, ...] | Unreadable:
    if isinstance(found, str):
        return Unreadable(found)
    return tuple(module(path, lines) for path, lines in found.items())


def module(path: str, lines: list[str]) -> Module:
    """Return a module from modinfo's lines."""
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return Module(
        path, fields.get("version", ""), fields.get("license", ""), fields.get("signer", ""), fields.get("sig_key", "")
    )


def dkms(raw: Mapping[str, Any]) -> tuple[DkmsSource, ...]:
    """Return what DKMS keeps of NVIDIA's module."""
    return tuple(
        DkmsSource(source["name"], source["version"], tuple(source["built"]), tuple(source["log"]))
        for source in raw["dkms"]
    )


def initramfs(raw: list[Mapping[str, Any]]) -> tuple[Initramfs, ...]:
    """Return the initramfs of the newest and of the running kernel."""
    return tuple(_initramfs(image) for image in raw)


def _initramfs(image: Mapping[str, Any]) -> Initramfs:
    texts = image.get("settings", {})
    return Initramfs(
        release=image["release"],
        path=image["path"],
        modules=tuple(image.get("modules", ())),
        settings=settings({path: text for path, text in texts.items() if "/modprobe.d/" in f"/{path}"}),
        command_lines=tuple(text.strip() for path, text in texts.items() if "/cmdline.d/" in f"/{path}"),
        nvidia_version=image.get("nvidia_version", ""),
        unread=image.get("reason", ""),
    )
