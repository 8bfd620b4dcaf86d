"""Where a target's packages come from: its words and mirror variables in, apt sources with their keys out."""

import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lpxdoctor.airgap.apt import Source
from lpxdoctor.airgap.programs import said_by
from lpxdoctor.airgap.target import TARGETS, Target
from lpxdoctor.errors import SetupError, UsageError

_KEY_LIMIT_S = 30

_KEYRINGS = Path("/usr/share/keyrings")
_KEYRING_PACKAGE = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}
DISTRIBUTION = "mirror_apt_distribution"
SECURITY = "mirror_apt_security"
# Ubuntu's own mirrors have amd64 alone; this is the place of all others.
_PORTS = "http://ports.ubuntu.com/ubuntu-ports"


def of(
    target: Target, told: Sequence[Mapping[str, str]], variables: Mapping[str, Any], work: Path
) -> tuple[Source, ...]:
    """Return the distribution's sources and those that the roles told of, whose keys are fetched into a directory.

    Raises:
        SetupError: a mirror or a key is not known here, or cannot be fetched.
    """
    return (*_distribution(target, variables), *(_repository(target, one, work) for one in told))


def _repository(target: Target, told: Mapping[str, str], work: Path) -> Source:
    uri, suite, *components = told["line"].replace("$(ARCH)", target.architecture).split()
    return Source(uri=uri, suite=suite, components=tuple(components), signed_by=_key(told["key"], work))


def _key(url: str, work: Path) -> Path:
    if not url.startswith(("https://", "http://", "file://")):
        raise UsageError(f"{url} is no URL of a key.\nCorrect the mirror variable: it is the URL of a repository.")
    try:
        with urllib.request.urlopen(url, timeout=_KEY_LIMIT_S) as response:  # noqa: S310 - of these three kinds
            content: bytes = response.read()
    except OSError as error:
        raise SetupError(
            f"The key of a repository could not be fetched from {url}: {error}.\n"
            "Is it reachable from here (proxy)? A mirror of it is named by a mirror_apt_* variable: --vars FILE"
        ) from error
    # apt tells an armoured key from a binary one by the name of its file.
    file = work / f"key-{len(list(work.glob('key-*')))}.{'asc' if content.startswith(b'-----BEGIN') else 'gpg'}"
    file.write_bytes(content)
    return file


def _distribution(target: Target, variables: Mapping[str, Any]) -> tuple[Source, ...]:
    keyring = _KEYRINGS / f"{target.distribution}-archive-keyring.gpg"
    if not keyring.is_file():
        raise SetupError(
            f"Packages of {target.name} are signed by keys that this machine has not: there is no {keyring}.\n"
            f"Install them: apt-get install {_KEYRING_PACKAGE[target.distribution]}"
        )
    main, security = _mirrors(target, variables)
    suites = ((main, target.codename), (main, f"{target.codename}-updates"), (security, f"{target.codename}-security"))
    return tuple(Source(uri=uri, suite=suite, components=target.components, signed_by=keyring) for uri, suite in suites)


def _mirrors(target: Target, variables: Mapping[str, Any]) -> tuple[str, str]:
    """Return the mirrors of a distribution and its security updates: those given, else those of this machine's apt."""
    own, own_security = _of_this_machine(target)
    main = str(variables.get(DISTRIBUTION) or own)
    security = str(variables.get(SECURITY) or own_security or (main if target.distribution == "ubuntu" else ""))
    missing = [name for name, value in ((DISTRIBUTION, main), (SECURITY, security)) if not value]
    if missing:
        raise SetupError(
            f"This machine's apt knows no mirror of {target.distribution.capitalize()}.\n"
            f"Name one in a file for --vars: {', '.join(f'{name}: URL' for name in missing)}"
        )
    return main, security


def _of_this_machine(target: Target) -> tuple[str, str]:
    """Return what this machine's apt has configured for a distribution: the archive and security, "" where nothing."""
    if target.distribution == "ubuntu" and target.architecture != "amd64":
        return _PORTS, ""
    distribution = target.distribution
    form = "$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)\t$(REPO_URI)"
    told = said_by(
        ("apt-get", "indextargets", "--format", form, "Created-By: Packages"), "apt's sources cannot be read"
    )
    codenames = {target.codename for target in TARGETS if target.distribution == distribution}
    found = {"": "", "security": ""}
    for line in told.splitlines():
        release, component, origin, uri = line.split("\t")
        base, _, pocket = release.partition("-")
        # Without its lists apt does not know a repository's origin, and writes the name of the field.
        ours = origin == distribution.capitalize() or (component == "main" and base in codenames)
        if ours and pocket in found and not found[pocket]:
            found[pocket] = uri
    return found[""], found["security"]
