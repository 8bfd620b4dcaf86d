"""Where a target's rpm packages come from: its words and mirror variables in, repositories with their keys out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from lpxdoctor.airgap.target import Target
from lpxdoctor.errors import SetupError

DISTRIBUTION = "mirror_rpm_distribution"
_ROCKY = "https://download.rockylinux.org/pub/rocky"
_RED_HAT = "https://cdn.redhat.com/content/dist/rhel9/9"
_KEYS = Path("/etc/pki/rpm-gpg")
# A registered machine has them; the CDN answers nobody else (subscription-manager writes them into redhat.repo).
_CERTIFICATES = Path("/etc/pki/entitlement")
_AUTHORITY = Path("/etc/rhsm/ca/redhat-uep.pem")


class Repository(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One repository, as the roles' packages.yml say it."""

    name: str
    url: str
    key: str  # URL
    signed: Literal["packages", "index"] = "packages"  # what the key has signed
    only: tuple[str, ...] = ()  # names of packages; none: all of it
    settings: dict[str, str] = {}

    def section(self) -> str:
        """Return the repository as a section of a .repo file."""
        lines = {
            "name": self.name,
            "baseurl": self.url,
            "gpgkey": self.key,
            "gpgcheck": int(self.signed == "packages"),
            "repo_gpgcheck": int(self.signed == "index"),
            "skip_if_unavailable": 0,
            **({"includepkgs": ",".join(self.only)} if self.only else {}),
            **self.settings,
        }
        return "".join((f"[{self.name}]\n", *(f"{name}={value}\n" for name, value in lines.items())))


def of(target: Target, told: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> tuple[Repository, ...]:
    """Return the distribution's repositories and those that the roles told of.

    Raises:
        SetupError: nobody says where the distribution's are.
    """
    mirror = str(variables.get(DISTRIBUTION) or "").rstrip("/")
    own = _rocky(target, mirror) if target.distribution == "rocky" else _red_hat(target, mirror)
    return (*own, *(msgspec.convert(one, Repository) for one in told))


def _rocky(target: Target, mirror: str) -> tuple[Repository, ...]:
    base = mirror or _ROCKY
    return tuple(
        Repository(
            name=name.lower(),
            url=f"{base}/{target.version}/{name}/{target.machine}/os/",
            key=_key(f"RPM-GPG-KEY-Rocky-{target.version}", base),
        )
        for name in ("BaseOS", "AppStream")
    )


def _red_hat(target: Target, mirror: str) -> tuple[Repository, ...]:
    base = mirror or _RED_HAT
    settings = {} if mirror else _entitlement(target)
    return tuple(
        Repository(
            name=name,
            url=f"{base}/{target.machine}/{name}/os/",
            key=_key("RPM-GPG-KEY-redhat-release", base),
            settings=settings,
        )
        for name in ("baseos", "appstream")
    )


def _key(file: str, base: str) -> str:
    """Return the key's URL: of this machine where it is of that distribution, else beside the packages."""
    own = _KEYS / file
    return own.as_uri() if own.is_file() else f"{base}/{file}"


def _entitlement(target: Target) -> dict[str, str]:
    key = next(iter(sorted(_CERTIFICATES.glob("*-key.pem"))), None)
    if key is None:
        raise SetupError(
            f"Packages of {target.name} come with a subscription, and this machine has none in {_CERTIFICATES}.\n"
            "Run this on a registered RHEL 9 (subscription-manager register), or name a mirror of "
            f"{_RED_HAT} in a file for --vars: {DISTRIBUTION}: URL"
        )
    certificate = key.with_name(key.name.replace("-key.pem", ".pem"))
    return {"sslcacert": str(_AUTHORITY), "sslclientkey": str(key), "sslclientcert": str(certificate)}
