"""The NVIDIA driver's packages on a host: what dpkg or rpm says in; name, version and hold of each out."""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import errno
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from ansible.module_utils import commands

# The packages whose version must be the kernel module's. Debian's nvidia-persistenced, nvidia-modprobe and the
# *-common ones go their own way, and so do the Container Toolkit's and CUDA's.
OF_DRIVER = re.compile(
    r"(?:libcuda1|libcuda-\w+|libnvidia-(?:ml1|ptxjitcompiler1|cfg1|compute|decode|encode|nscq|gl|extra|fbc1|cfg1-[\w-]+)"
    r"|nvidia-(?:driver|dkms|kernel-(?:dkms|open-dkms|source|support)|open-kernel-dkms|utils|compute-utils|headless|smi"
    r"|fabricmanager|fabric-manager|imex|open)|cuda-drivers|kmod-nvidia|dkms-nvidia)(?:-[\w.-]+)?"
)
NOT_DRIVER = re.compile(r"nvidia-driver-(?:pinning|assistant|local-repo)|nvidia-open-\w*repo")
# What makes up a driver: the library that programs load, and the kernel module, from whichever source.
LIBRARY = re.compile(r"libcuda1|libnvidia-compute(-\d+)?(-server)?|nvidia-driver-cuda(-libs)?|cuda-drivers(-\d+)?")
MODULE = re.compile(
    r"nvidia(-open)?-kernel-dkms|nvidia-kernel-open-dkms|nvidia-dkms(-\d+)?(-server)?(-open)?"
    r"|linux-modules-nvidia-\d+(-server)?(-open)?-.+|kmod-nvidia\S*|nvidia-open(-\d+)?"
)
UPSTREAM = re.compile(r"(?:^|:)(\d{3}\.\d+(?:\.\d+)?)")
Package = dict[str, Any]


def upstream(version: str) -> str:
    """Return the driver version in a package's version, "" where it has none."""
    match = UPSTREAM.search(version)
    return match[1] if match else ""


def of_driver(name: str, version: str) -> bool:
    """Tell whether a package's version must be the kernel module's."""
    return bool(OF_DRIVER.fullmatch(name) and upstream(version) and not NOT_DRIVER.match(name))


def to_hold(packages: dict[str, Package]) -> list[str]:
    """Return the names of those that no automatic upgrade may move.

    Ubuntu's packages of signed modules are not among them: held, they would let a new kernel come without its module.
    """
    return sorted(name for name, package in packages.items() if of_driver(name.partition(":")[0], package["version"]))


def is_open(package: str) -> bool:
    """Tell whether a package brings the open module."""
    return "-open" in package


def versions_of(packages: dict[str, Package]) -> Counter[str]:
    """Return how many of the driver's packages are of which version of a package."""
    rows = ((name.partition(":")[0], package["version"]) for name, package in packages.items())
    return Counter(version for name, version in rows if of_driver(name, version))


def version(packages: dict[str, Package]) -> str:
    """Return the driver version that most packages are of, "" where there are none."""
    counted: Counter[str] = Counter()
    for there, number in versions_of(packages).items():
        counted[upstream(there)] += number
    return counted.most_common(1)[0][0] if counted else ""


def installed() -> dict[str, Package]:
    """Return {name: {version, held}} of the packages about NVIDIA's driver, whichever package manager is here."""
    return dpkg() if shutil.which("dpkg-query") else rpm()


def dpkg() -> dict[str, Package]:
    """Return what dpkg has installed; of a foreign architecture with it in the name."""
    form = "${Package}\t${Architecture}\t${Version}\t${db:Status-Abbrev}\n"
    names = ("*nvidia*", "libcuda*", "cuda-drivers*", "nvlsm")
    said = _said("dpkg-query", "-W", "-f", form, *names, fine=(0, 1))  # 1: one of the patterns names nothing
    native = _said("dpkg", "--print-architecture").strip()
    rows = [line.split("\t") for line in said.splitlines()]
    return {
        name if arch in (native, "all") else f"{name}:{arch}": {"version": version, "held": state.startswith("h")}
        for name, arch, version, state in rows
        if state[1:2] in ("i", "U", "F", "H", "W", "T")  # the others are states of an interrupted run
    }


def rpm() -> dict[str, Package]:
    """Return what rpm has installed; held where versionlock names it."""
    form = "%{NAME}\t%{VERSION}-%{RELEASE}\n"
    said = _said("rpm", "-qa", "--qf", form, "*nvidia*", "cuda-drivers*", "libnvidia*", "nvlsm")
    locked = locks()
    rows = [line.split("\t") for line in said.splitlines() if "\t" in line]
    return {
        name: {"version": version, "held": any(re.match(rf"{re.escape(name)}-\d", line) for line in locked)}
        for name, version in rows
    }


def locks() -> list[str]:
    """Return the lines of dnf's versionlock."""
    file = Path("/etc/dnf/plugins/versionlock.list")
    return [line.strip() for line in file.read_text().splitlines() if line.strip()] if file.is_file() else []


def _said(*argv: str, fine: tuple[int, ...] = (0,)) -> str:
    done = commands.run(*argv)
    if done.returncode not in fine:  # a damaged database is no host without packages
        why = f"it ended with {done.returncode}: {done.stderr.strip() or 'without a word'}"
        raise OSError(errno.EIO, why, argv[0])
    return str(done.stdout)
