"""The NVIDIA Container Toolkit's packages, programs, settings and refresh unit in; what it is on this host out."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.packages import Package

# The four that are released together and must be of one version; the first two bring the programs.
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# What came before them and registers a runtime of its own.
LEGACY = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime", "nvidia-container-runtime-hook")
HOOK = "nvidia-container-runtime-hook"
RUNTIME = "nvidia-container-runtime"


@dataclass(frozen=True, kw_only=True)
class Config:
    """/etc/nvidia-container-runtime/config.toml, each setting with the toolkit's default where it is not set."""

    path: str
    error: str = ""
    mode: str = "auto"  # how nvidia-container-runtime hands a GPU over: auto, legacy, cdi, csv, jit-cdi
    no_cgroups: bool = False


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """The units that write the CDI specification anew when the driver changes."""

    installed: bool
    watching: bool  # nvidia-cdi-refresh.path is active
    result: str  # of the service's last run: "success", "exit-code", ...
    before_docker: bool  # ordered before docker.service, so that a container that starts at boot finds it


def config(path: str, text: str) -> Config:
    """Return the settings."""
    try:
        data = msgspec.toml.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return Config(path=path, error=str(error))
    cli, runtime = data.get("nvidia-container-cli") or {}, data.get("nvidia-container-runtime") or {}
    return Config(
        path=path,
        mode=str(runtime.get("mode", "auto")),
        no_cgroups=cli.get("no-cgroups") is True,
    )


def refresh(shown: str) -> Refresh:
    """Return the units of `systemctl show`: a block of the service and one of the path, a blank line between."""
    units = {fields.get("Id", ""): fields for fields in map(assignments, shown.split("\n\n"))}
    service, path = units.get("nvidia-cdi-refresh.service", {}), units.get("nvidia-cdi-refresh.path", {})
    return Refresh(
        installed=service.get("LoadState") == "loaded",
        watching=path.get("ActiveState") == "active",
        result=service.get("Result", ""),
        before_docker="docker.service" in service.get("Before", "").split(),
    )


def sources(files: Mapping[str, str | None]) -> dict[str, str]:
    """Return {file: the key that it trusts, "" for none} of apt's sources of the toolkit.

    Of one repository with two keys apt takes neither: "Conflicting values set for option Signed-By".
    """
    found = {}
    for path, text in files.items():
        lines = [line for line in (text or "").splitlines() if not line.lstrip().startswith("#")]
        if path.endswith((".list", ".sources")) and any("nvidia.github.io/" in line for line in lines):
            keys = re.findall(r"signed-by[=:]\s*([^\s\]]+)", "\n".join(lines), re.IGNORECASE)
            found[path] = keys[0] if keys else ""
    return found


def of_toolkit(installed: Iterable[Package]) -> tuple[Package, ...]:
    """Return the toolkit's own packages."""
    return tuple(package for package in installed if bare(package) in PACKAGES)


def legacy(installed: Iterable[Package]) -> tuple[Package, ...]:
    """Return what is left of its forerunners; since 1.6 they are empty packages, which do no harm."""
    return tuple(package for package in installed if bare(package) in LEGACY)


def bare(package: Package) -> str:
    """Return a package's name without its architecture."""
    return package.name.partition(":")[0]


def version(package: Package) -> Version | None:
    """Return the release of a package: 1.18.1 of "1.18.1-1"."""
    return knowledge.version(package.version.rpartition("-")[0] or package.version)


def by_name(programs: Mapping[str, bool]) -> dict[str, str]:
    """Return {name: path} of the programs that can be run."""
    return {path.rpartition("/")[2]: path for path, runs in programs.items() if runs}
