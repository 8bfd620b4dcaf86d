"""The systems that a bundle can be made for: a name in; distribution, suites, Python and C library out."""

from dataclasses import dataclass, replace
from typing import Literal

from lpxdoctor.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Target:
    """A system, as /etc/os-release names it, with what decides which packages and wheels fit."""

    distribution: str  # ID
    version: str  # VERSION_ID, or the part of it before a point that updates move
    manager: Literal["apt", "dnf"] = "apt"
    codename: str = ""  # apt's: of the suites
    components: tuple[str, ...] = ()  # apt's
    python: str  # the newest of the distribution that lpxdoctor runs on
    glibc_minor: int  # 2.36 is 36
    architecture: str = "amd64"  # dpkg's word

    @property
    def machine(self) -> str:
        """Return the kernel's word for the architecture, which is rpm's too."""
        return _MACHINES[self.architecture]

    @property
    def name(self) -> str:
        """Return the target's name, as --for takes it."""
        system = f"{self.distribution}{self.version.replace('.', '')}"
        return system if self.architecture == "amd64" else f"{system}/{self.architecture}"


_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_DEBIAN = ("main", "contrib", "non-free", "non-free-firmware")
_UBUNTU = ("main", "restricted", "universe", "multiverse")
# Python and glibc: the release notes of each. RHEL's own python3 is 3.9; its AppStream has 3.12 besides.
TARGETS = (
    Target(distribution="debian", version="12", codename="bookworm", components=_DEBIAN, python="3.11", glibc_minor=36),
    Target(distribution="debian", version="13", codename="trixie", components=_DEBIAN, python="3.13", glibc_minor=41),
    Target(distribution="ubuntu", version="22.04", codename="jammy", components=_UBUNTU, python="3.10", glibc_minor=35),
    Target(distribution="ubuntu", version="24.04", codename="noble", components=_UBUNTU, python="3.12", glibc_minor=39),
    Target(distribution="rhel", version="9", manager="dnf", python="3.12", glibc_minor=34),
    Target(distribution="rocky", version="9", manager="dnf", python="3.12", glibc_minor=34),
)


def named(name: str) -> Target:
    """Return the target of that name, for x86-64 where it names no architecture; UsageError for another."""
    system, _, asked = name.partition("/")
    found = next((target for target in TARGETS if target.name == system), None)
    architecture = next((one for one, machine in _MACHINES.items() if asked in (one, machine)), None)
    if found is None or (asked and architecture is None):
        known = ", ".join(target.name for target in TARGETS)
        raise UsageError(f"{name!r} is no target.\nThere are: {known}; /arm64 behind one is for 64-bit ARM.")
    return replace(found, architecture=architecture or "amd64")
