"""The kernel log in; what it says of the driver's failures, by kind and GPU, out."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_STAMP = re.compile(r"^(?:\w{3}\s+\d+ [\d:]+ \S+ kernel:\s*)?(?:<\d+>)?(?:\[\s*[\d.]+\]\s*)?")
_CONTINUED = re.compile(r"^\s+NVRM:\s*")
_ADDRESS = re.compile(r"\b(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")

# Kind -> the words by which the kernel or the module says it. Order is rank: an earlier kind explains a later one.
KINDS: dict[str, str] = {
    "signature": r"Loading of (?:unsigned module|module with \w+ \w+) is rejected|Lockdown: .*unsigned module loading"
    r"|nvidia.*(?:Key was rejected by service|Required key not available)"
    r"|PKCS#7 signature not signed with a trusted key",
    "other kernel": r"nvidia\S*: (?:version magic '|disagrees about version of symbol|Unknown symbol)",
    "needs open": r"requires use of the NVIDIA open kernel modules",
    "needs proprietary": r"is not supported by open (?:NVRM: )?nvidia\.ko",
    "too old for driver": r"installed in this system is (?:not supported by the NVIDIA|supported through the NVIDIA)",
    "taken by another": r"The NVIDIA probe routine was not called for",
    "no address space": r"PCI I/O region assigned to your NVIDIA device is invalid|BAR\d? is 0M @",
    "firmware missing": r"Direct firmware load for nvidia/\S+ failed|RmFetchGspRmImages|failed to load firmware.*gsp"
    r"|_kgspBootGspRm.*unable to load",
    "api mismatch": r"API mismatch: ",
    "not initialised": r"RmInitAdapter failed|rm_init_adapter failed|nvidia.*probe (?:of .*|with driver nvidia )failed"
    r"|The NVIDIA probe routine failed for|None of the NVIDIA (?:devices|graphics adapters) were initialized",
}
_KINDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in KINDS.items()}
# Every kind's messages have one of these, in lower case: looking for them first is a tenth of the work on a long log.
_MARKS = ("nv", "rejected", "unsigned", "pkcs#7", "gsp", "bar", "api mismatch", "rminit", "rm_init", "this system")
_MISMATCH = re.compile(
    r"client (?:has the )?version (\d[\d.]*\d)\D+?(?:this )?kernel module (?:has the )?version (\d[\d.]*\d)"
)


@dataclass(frozen=True)
class Complaint:
    """One message about the driver: its kind, a key of KINDS, its text, and the GPU that it names or ""."""

    kind: str
    text: str
    address: str

    @property
    def versions(self) -> tuple[str, str]:
        """Of an API mismatch, the versions of the client and of the kernel module, ("", "") where not given."""
        match = _MISMATCH.search(self.text)
        return (match[1], match[2]) if match else ("", "")


def messages(log: Iterable[str]) -> list[str]:
    """Return the messages of a kernel log, continued lines joined and time stamps removed."""
    found: list[str] = []
    for line in log:
        continued = _CONTINUED.match(line)
        text = _STAMP.sub("", line).strip()
        if found and (continued or _carries_on(found[-1], text)):
            found[-1] += " " + text.removeprefix("NVRM:").strip()
        else:
            found.append(text)
    return found


def _carries_on(before: str, text: str) -> bool:
    """Older kernels put a time stamp before each line of a message: what ends in mid-sentence goes on in the next."""
    return (
        before.startswith("NVRM:") and text.startswith("NVRM:") and before.rstrip().endswith((" but", " the", " open"))
    )


def complaints(log: Iterable[str]) -> tuple[Complaint, ...]:
    """Return the messages that say why the driver does not work, each text once, in the order of the log."""
    found: dict[str, Complaint] = {}
    for text in messages(log):
        lower = text.lower()
        if any(mark in lower for mark in _MARKS):
            kind = next((kind for kind, pattern in _KINDS.items() if pattern.search(text)), "")
            if kind:
                found.setdefault(text, Complaint(kind, text, _address(text)))
    return tuple(found.values())


def _address(text: str) -> str:
    """Return the PCI address in a message as sysfs writes it, "" for none; NVRM often leaves the function out."""
    match = _ADDRESS.search(text)
    if not match:
        return ""
    domain, bus, device = match[1].lower().split(":")
    return f"{domain[-4:]}:{bus}:{device if '.' in device else device + '.0'}"


def ranked(found: Iterable[Complaint]) -> list[Complaint]:
    """Return complaints, the one that explains the others first; of one kind the newest first."""
    order = list(KINDS)
    newest_first = list(found)[::-1]
    return sorted(newest_first, key=lambda complaint: order.index(complaint.kind))
