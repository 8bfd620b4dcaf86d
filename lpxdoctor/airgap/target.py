"""The systems that a bundle can be made for: a name in; distribution, suites, Python and C library out."""

from dataclasses import dataclass

from lpxdoctor.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Target:
    """A system, as /etc/os-release names it, with what decides which packages and wheels fit."""

    distribution: str  # ID
    version: str  # VERSION_ID
    codename: str
    components: tuple[str, ...]
    python: str  # of the distribution's python3
    glibc_minor: int  # 2.36 is 36
    architecture: str = "amd64"
    machine: str = "x86_64"

    @property
    def name(self) -> str:
        """Return what --for takes."""
        return f"{self.distribution}{self.version.replace('.', '')}"


_DEBIAN = ("main", "contrib", "non-free", "non-free-firmware")
_UBUNTU = ("main", "restricted", "universe", "multiverse")
# Python and glibc: the release notes of each.
TARGETS = (
    Target(distribution="debian", version="12", codename="bookworm", components=_DEBIAN, python="3.11", glibc_minor=36),
    Target(distribution="debian", version="13", codename="trixie", components=_DEBIAN, python="3.13", glibc_minor=41),
    Target(distribution="ubuntu", version="22.04", codename="jammy", components=_UBUNTU, python="3.10", glibc_minor=35),
    Target(distribution="ubuntu", version="24.04", codename="noble", components=_UBUNTU, python="3.12", glibc_minor=39),
)


def named(name: str) -> Target:
    """Return the target of that name; UsageError for another, which says why where dnf is concerned."""
    found = next((target for target in TARGETS if target.name == name), None)
    if found is not None:
        return found
    known = ", ".join(target.name for target in TARGETS)
    if name.startswith(("rhel", "rocky", "alma")):
        raise UsageError(
            f"{name}: only apt's packages can be bundled.\nFor dnf, mirror its repositories (dnf reposync), and name "
            f"the mirror in the mirror_rpm_* variables of the roles.\nTargets here: {known}."
        )
    raise UsageError(f"{name!r} is no target.\nThere are: {known}.")
