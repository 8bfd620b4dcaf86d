"""Firmware variable, kernel settings and key lists in; whether a module must be signed, and by whom it may be, out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lpxdoctor.evidence import Unreadable

_LOCKDOWN = re.compile(r"\[(\w+)\]")
_KEY = re.compile(r"\basymmetri\S*\s+(.*?): [0-9a-f]{6,}:? ?")
_SUBJECT = re.compile(r"Subject:.*?CN ?= ?([^,/\n]+)")
_SHORT = re.compile(r"[0-9a-f]{10} (.+)")  # newer versions of mokutil list a line a key, without its serial
_SERIAL = re.compile(r"Serial Number:\s*(?:\d+ \(0x([0-9a-fA-F]+)\)|((?:[0-9a-fA-F]{2}:)+[0-9a-fA-F]{2}))")


@dataclass(frozen=True)
class Enforcement:
    """Whether this kernel refuses modules without a trusted signature."""

    secure_boot: bool
    lockdown: str  # none, integrity or confidentiality; "" where the kernel has no lockdown
    sig_enforce: bool

    @property
    def on(self) -> bool:
        """Whether it does: Secure Boot makes every distribution's kernel lock itself down."""
        if self.lockdown or self.sig_enforce:
            return self.sig_enforce or self.lockdown != "none"
        return self.secure_boot

    def __str__(self) -> str:
        parts = ["Secure Boot on" if self.secure_boot else "Secure Boot off"]
        parts += [f"lockdown {self.lockdown}"] if self.lockdown else []
        return ", ".join([*parts, "module.sig_enforce"] if self.sig_enforce else parts)


def secure_boot(firmware_is_efi: bool, variables: Mapping[str, str | None]) -> bool:
    """Return whether Secure Boot is on, from {path: text} of the firmware's SecureBoot variable.

    Its file holds four bytes of attributes and one of value (the kernel's Documentation/filesystems/efivarfs.rst).
    """
    if not firmware_is_efi:
        return False
    text = next((text for text in variables.values() if text), None)
    if text is None or len(text) < 5:
        raise Unreadable("the firmware is UEFI, and its variable SecureBoot cannot be read")
    return ord(text[4]) == 1


def enforcement(secure_boot_on: bool, lockdown: str | None, sig_enforce: str | None) -> Enforcement:
    """Return what the kernel enforces, from the texts of lockdown and sig_enforce, None where it has no such file."""
    state = _LOCKDOWN.search(lockdown or "")
    return Enforcement(secure_boot_on, state[1] if state else "", (sig_enforce or "").strip() in ("Y", "1"))


@dataclass(frozen=True)
class Keys:
    """The keys that modules are trusted by: names in the kernel's keyrings, and (name, serial) of the owner's keys."""

    kernel: frozenset[str]
    owner: frozenset[tuple[str, str]]

    def trust(self, signer: str, key: str) -> bool:
        """Return whether a module signed by that key of that signer is accepted.

        Args:
            signer: the common name that modinfo prints.
            key: the serial number that modinfo prints as sig_key.

        A key made anew has the name of the one that was enrolled before it: then only the serial tells them apart.
        """
        serials = {serial for name, serial in self.owner if name == signer}
        if serials and "" not in serials:
            return _bare(key) in serials
        return bool(serials) or signer in self.kernel


def keys(proc_keys: str, enrolled: str) -> Keys:
    """Return the trusted keys, from /proc/keys as root sees it and what `mokutil --list-enrolled` printed."""
    names = frozenset(match[1] for match in map(_KEY.search, proc_keys.splitlines()) if match)
    if not names:
        raise Unreadable("/proc/keys shows no key of the kernel to this user")
    owner = {(match[1], "") for match in map(_SHORT.fullmatch, enrolled.splitlines()) if match}
    for block in enrolled.split("[key ")[1:]:
        subject, serial = _SUBJECT.search(block), _SERIAL.search(block)
        if subject:
            owner.add((subject[1].strip(), _bare(serial[1] or serial[2]) if serial else ""))
    return Keys(names, frozenset(owner))


def _bare(number: str) -> str:
    return number.replace(":", "").lower().lstrip("0")
