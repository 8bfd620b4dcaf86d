"""Kernels, modprobe's settings, initramfs, boot loader and firmware in; what this boot and the next one do out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lpxdoctor.evidence import Command, Evidence, File, Glob, Listing, Probe, Program, Unreadable
from lpxdoctor.facts import bootloader, modprobe, modules, signing
from lpxdoctor.facts.bootloader import NextBoot
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.facts.host import VIRTUALIZATION, virtualization
from lpxdoctor.facts.modprobe import CommandLine, Setting
from lpxdoctor.facts.modules import DkmsSource, Initramfs, Kernel, Module
from lpxdoctor.facts.signing import Enforcement, Keys

KERNEL = File("/proc/sys/kernel/osrelease")
CMDLINE = File("/proc/cmdline")
MODULES = Program("modules", timeout_s=20)
INITRAMFS = Program("initramfs", timeout_s=20)
MODPROBE_FILES = tuple(Glob(f"{directory}/modprobe.d/*.conf") for directory in modprobe.DIRECTORIES)
MODPROBE_DATES = Listing("/etc/modprobe.d/*.conf")
BOOT_FILES = Listing("/boot/[vik]*")  # vmlinuz, initrd, initramfs, kernel
GRUB = File("/boot/grub/grub.cfg"), File("/boot/grub2/grub.cfg")
GRUBENV = File("/boot/grub/grubenv"), File("/boot/grub2/grubenv")
ENTRIES = Glob("/boot/loader/entries/*.conf"), Glob("/boot/efi/loader/entries/*.conf")
LOADER = File("/boot/loader/loader.conf"), File("/boot/efi/loader/loader.conf")
EFI = Listing("/sys/firmware/efi")
SECURE_BOOT = Glob("/sys/firmware/efi/efivars/SecureBoot-*")
LOCKDOWN = File("/sys/kernel/security/lockdown")
SIG_ENFORCE = File("/sys/module/module/parameters/sig_enforce")
KEYS = File("/proc/keys")
ENROLLED = Command(("mokutil", "--list-enrolled"))


_BOOT_LOADER: tuple[Probe, ...] = (*GRUB, *GRUBENV, *ENTRIES, *LOADER, BOOT_FILES)
_SIGNATURES: tuple[Probe, ...] = (EFI, SECURE_BOOT, LOCKDOWN, SIG_ENFORCE, KEYS, ENROLLED)


@dataclass(frozen=True, kw_only=True)
class Boot(Fact):
    """How this machine came to its kernel modules, and how it will at the next boot."""

    probes: ClassVar[tuple[Probe, ...]] = (
        KERNEL,
        CMDLINE,
        MODULES,
        INITRAMFS,
        *MODPROBE_FILES,
        MODPROBE_DATES,
        *_BOOT_LOADER,
        *_SIGNATURES,
        *VIRTUALIZATION,
    )

    outside: str  # why the kernel is not this system's own, as in a container; "" where it is
    running: str  # the kernel's release
    command_line: CommandLine
    kernels: tuple[Kernel, ...]  # newest first
    modules: Mapping[str, tuple[Module, ...] | Unreadable]
    dkms: tuple[DkmsSource, ...]
    settings: tuple[Setting, ...]  # of modprobe, as its files say
    effective: tuple[Setting, ...] | None  # as modprobe itself says, kernel command line included; None without it
    initramfs: tuple[Initramfs, ...]
    next: NextBoot
    enforcement: Enforcement
    keys: Keys
    written: Mapping[str, int]  # {path: seconds since the epoch} of modprobe's own files and of those below /boot

    @classmethod
    def parse(cls, evidence: Evidence) -> "Boot":
        """Return the facts that the answers hold; never raises."""
        raw = partial(evidence.value, MODULES)
        return cls(
            outside=known(partial(_outside, evidence)),
            running=known(lambda: evidence.text(KERNEL).strip()),
            command_line=known(lambda: CommandLine(evidence.text(CMDLINE).strip())),
            kernels=known(lambda: modules.kernels(raw())),
            modules=known(lambda: modules.modules(raw())),
            dkms=known(lambda: modules.dkms(raw())),
            settings=known(partial(_settings, evidence)),
            effective=known(lambda: _effective(raw())),
            initramfs=known(lambda: modules.initramfs(evidence.value(INITRAMFS))),
            next=known(partial(_next, evidence)),
            enforcement=known(partial(_enforcement, evidence)),
            keys=known(partial(_keys, evidence)),
            written=known(partial(_written, evidence)),
        )

    def kernel(self, release: str) -> Kernel | None:
        """Return an installed kernel."""
        return next((kernel for kernel in self.kernels if kernel.release == release), None)

    def module(self, release: str) -> Module | None:
        """Return NVIDIA's module on disk for a kernel, None where there is none; Unreadable where that is unknown."""
        kernel = self.kernel(release)
        if kernel is None or not kernel.nvidia:
            return None
        found = self.modules.get(release, Unreadable(f"the modules of kernel {release} were not looked at"))
        if isinstance(found, Unreadable):
            raise found
        return found[0] if found else None

    def image(self, release: str) -> Initramfs | None:
        """Return a kernel's initramfs, None where it has none; Unreadable where it could not be read."""
        image = next((image for image in self.initramfs if image.release == release), None)
        if image is None:
            raise Unreadable(f"the initramfs of kernel {release} was not looked at")
        if image.unread:
            raise Unreadable(f"{image.path}: {image.unread}")
        return image if image.path else None

    def blocks(self, module: str) -> tuple[Setting, ...]:
        """Return the settings that keep a module away: whether any does is modprobe's word, where is the files'."""
        filed = modprobe.blocks(self.settings, module)
        if self.effective is None:
            return filed
        said = modprobe.blocks(self.effective, module)  # with what the kernel's command line adds
        return (filed or (() if self.command_line.blocks(module) else said)) if said else ()

    @property
    def nouveau_kept_out(self) -> bool:
        """Whether anything keeps nouveau from the GPU once the root file system is there."""
        return bool(self.blocks("nouveau") or self.command_line.blocks("nouveau"))

    @property
    def outlook(self) -> str:
        """What the next boot brings, in one line; "" where the kernel comes from outside."""
        if self.outside:
            return ""
        module = self.module(self.next.release)
        image = self.image(self.next.release)
        early = image is not None and image.has_nouveau and not kept_out_early(image, self.next_command_line)
        has = f"has its NVIDIA module {module.version}" if module else "has no NVIDIA module"
        nouveau = "nouveau stays out" if self.nouveau_kept_out and not early else "nouveau may take the GPUs"
        return f"kernel {self.next.release} {has}, {nouveau}, {self.enforcement}"

    @property
    def next_command_line(self) -> CommandLine:
        """The kernel command line of the next boot; this boot's where the boot loader's is not known."""
        line = self.next.command_line
        return self.command_line if line is None else CommandLine(line)


def kept_out_early(image: Initramfs, line: CommandLine) -> tuple[str, ...]:
    """Return what keeps nouveau from the GPU while an initramfs runs."""
    own = (parameter for text in image.command_lines for parameter in CommandLine(text).blocks("nouveau", early=True))
    return (
        *(f"{setting} in {setting.where}" for setting in modprobe.blocks(image.settings, "nouveau")),
        *own,
        *line.blocks("nouveau", early=True),
    )


def _outside(evidence: Evidence) -> str:
    if not evidence.value(MODULES)["kernels"]:
        return "no kernel is installed here: it comes from outside, as in a container or a micro-VM"
    if virtualization(evidence) == "container":
        return "this is a container: its kernel is its host's, so judge the host"
    return ""


def _settings(evidence: Evidence) -> tuple[Setting, ...]:
    files: dict[str, str | None] = {
        path: text for probe in MODPROBE_FILES for path, text in evidence.found(probe).items()
    }
    unread = [path for path, text in files.items() if text is None]
    if unread:
        raise Unreadable(f"{unread[0]} may not be read by this user")
    return modprobe.settings(files)


def _effective(raw: Mapping[str, Any]) -> tuple[Setting, ...] | None:
    printed = raw["showconfig"]
    return None if printed is None else tuple(modprobe.lines("\n".join(printed), where="modprobe --showconfig"))


def _next(evidence: Evidence) -> NextBoot:
    found: dict[str, str | None] = {path: text for probe in ENTRIES for path, text in evidence.found(probe).items()}
    bootable = {path.partition("/vmlinuz-")[2] for path in evidence.found(BOOT_FILES)}
    releases = [kernel["release"] for kernel in evidence.value(MODULES)["kernels"] if kernel["release"] in bootable]
    return bootloader.next_boot(
        _first_text(evidence, GRUB), _first_text(evidence, GRUBENV), found, _first_text(evidence, LOADER), releases
    )


def _first_text(evidence: Evidence, files: tuple[File, ...]) -> str | None:
    """Return the text of the first of these files that exists."""
    return next((evidence.text(file) for file in files if not evidence.absent(file)), None)


def _enforcement(evidence: Evidence) -> Enforcement:
    on = signing.secure_boot(bool(evidence.found(EFI)), evidence.found(SECURE_BOOT))
    return signing.enforcement(on, evidence.text_or_none(LOCKDOWN), evidence.text_or_none(SIG_ENFORCE))


def _keys(evidence: Evidence) -> Keys:
    listed = "" if evidence.absent(ENROLLED) else str(evidence.value(ENROLLED)["stdout"])
    return signing.keys(evidence.text(KEYS), listed)


def _written(evidence: Evidence) -> dict[str, int]:
    entries = {**evidence.found(MODPROBE_DATES), **evidence.found(BOOT_FILES)}
    return {path: int(entry["mtime"]) for path, entry in entries.items()}
