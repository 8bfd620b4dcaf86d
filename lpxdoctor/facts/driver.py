"""The driver's kernel module, libraries, packages, device nodes and tools in, as one typed value out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from packaging.version import InvalidVersion, Version

from lpxdoctor.evidence import Command, Evidence, File, Glob, Listing, Probe, Program, Unreadable
from lpxdoctor.facts import environment, nodes, packages
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.driver_log import Complaint, complaints
from lpxdoctor.facts.environment import Variable
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.facts.host import DMESG
from lpxdoctor.facts.libraries import Libraries, libraries
from lpxdoctor.facts.nodes import Adapter, Node
from lpxdoctor.facts.packages import Automatic, Change, Package

VERSION = File("/proc/driver/nvidia/version")
MODULES = Listing("/sys/module/n[ov]*")
MODULE_VERSION = File("/sys/module/nvidia/version")
ADAPTERS = Glob("/proc/driver/nvidia/gpus/*/information")
PARAMETERS = File("/proc/driver/nvidia/params")
MAJORS = File("/proc/devices")
NODES = Listing("/dev/nvidia*")
LIBRARIES = Program("libraries")
SMI = Program("nvidia_smi")
TOOLS = Listing("/usr/bin/nvidia-*")
FIRMWARE = Listing("/lib/firmware/nvidia/*/gsp*")
_NAMES = ("*nvidia*", "libcuda*", "cuda-drivers*", "nvlsm", "unattended-upgrades")
DPKG = Command(("dpkg-query", "-W", "-f", "${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\n", *_NAMES))
RPM = Command(("rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\n", "*nvidia*", "cuda-drivers*", "nvlsm"))
APT = Glob("/etc/apt/apt.conf.d/*")
PREFERENCES = Glob("/etc/apt/preferences.d/*")
HISTORY = File("/var/log/apt/history.log")
DNF_AUTOMATIC = File("/etc/dnf/automatic.conf")
DNF_TIMERS = Listing("/etc/systemd/system/timers.target.wants/dnf-automatic*")
DNF = File("/etc/dnf/dnf.conf")
LOCKS = File("/etc/dnf/plugins/versionlock.list"), File("/etc/yum/pluginconf.d/versionlock.list")
PERSISTENCED = Command(
    ("systemctl", "show", "nvidia-persistenced.service", "--property=LoadState,ActiveState,UnitFileState,ExecStart")
)
ENVIRONMENT: tuple[File | Glob, ...] = (
    File("/etc/environment"),
    File("/etc/profile"),
    File("/etc/bash.bashrc"),
    File("/etc/security/pam_env.conf"),
    File("/etc/systemd/system.conf"),
    Glob("/etc/profile.d/*.sh"),
    Glob("/etc/environment.d/*.conf"),
    Glob("/etc/systemd/system.conf.d/*.conf"),
)

# "NVIDIA UNIX x86_64 Kernel Module  535.261.03" and "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04".
_LOADED = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Smi:
    """How nvidia-smi ended; status is None where it was not run, which skipped explains, or hung."""

    path: str
    status: int | None
    said: str  # its last line
    skipped: str
    hung: str  # what it was doing


@dataclass(frozen=True)
class Daemon:
    """The unit of nvidia-persistenced."""

    installed: bool
    active: bool
    command: str


@dataclass(frozen=True, kw_only=True)
class Driver(Fact):
    """NVIDIA's driver on this host, from the module in memory to the packages on disk."""

    probes: ClassVar[tuple[Probe, ...]] = (
        *(VERSION, MODULES, MODULE_VERSION, ADAPTERS, PARAMETERS, MAJORS, NODES, LIBRARIES, SMI, TOOLS, FIRMWARE),
        *(DPKG, RPM, APT, PREFERENCES, HISTORY, DNF_AUTOMATIC, DNF_TIMERS, DNF, *LOCKS),
        *(PERSISTENCED, *ENVIRONMENT, DMESG),
    )

    loaded: str  # version of the module in memory, "" where none is
    open_module: bool  # whether that is the open one
    in_memory: frozenset[str]  # modules of GPUs: nvidia, nvidia_uvm, nouveau, nova_core, ...
    adapters: tuple[Adapter, ...]
    parameters: Mapping[str, str]
    majors: Mapping[str, int]
    nodes: tuple[Node, ...]
    libraries: Libraries
    smi: Smi
    runfile: bool  # whether NVIDIA's .run installer was here: it leaves nvidia-uninstall
    modprobe_helper: bool  # whether nvidia-modprobe is here, which loads and makes nodes for ordinary users
    firmware: frozenset[str]  # driver versions whose GSP firmware is on disk
    packages: tuple[Package, ...]
    automatic: Automatic
    last_change: Change | None
    persistenced: Daemon
    variables: tuple[Variable, ...]
    complaints: tuple[Complaint, ...]

    @property
    def driver_packages(self) -> tuple[Package, ...]:
        """The packages whose version must be the kernel module's."""
        return tuple(package for package in self.packages if package.of_driver)

    @property
    def library_version(self) -> str:
        """The version of the libraries that programs take, "" where none is found or none tells its version."""
        found = [library for library in self.libraries.taken if not (library.is_stub or library.is_compat)]
        return next((library.version for library in found if library.version), "")

    def package_version(self, name: str) -> str:
        """Return the driver version of the packages whose name begins so, "" where there is none."""
        return next((p.upstream for p in self.packages if p.name.startswith(name) and p.upstream), "")

    @classmethod
    def parse(cls, evidence: Evidence) -> "Driver":
        """Return the facts that the answers hold; never raises."""
        return cls(
            loaded=known(partial(_loaded, evidence)),
            open_module=known(lambda: "Open Kernel Module" in (evidence.text_or_none(VERSION) or "")),
            in_memory=known(lambda: frozenset(path.rpartition("/")[2] for path in evidence.found(MODULES))),
            adapters=known(lambda: nodes.adapters(evidence.found(ADAPTERS))),
            parameters=known(lambda: _parameters(evidence.text_or_none(PARAMETERS) or "")),
            majors=known(lambda: nodes.majors(evidence.text(MAJORS))),
            nodes=known(lambda: nodes.nodes(evidence.found(NODES))),
            libraries=known(lambda: libraries(evidence.value(LIBRARIES))),
            smi=known(partial(_smi, evidence)),
            runfile=known(lambda: "/usr/bin/nvidia-uninstall" in evidence.found(TOOLS)),
            modprobe_helper=known(lambda: "/usr/bin/nvidia-modprobe" in evidence.found(TOOLS)),
            firmware=known(lambda: frozenset(path.split("/")[-2] for path in evidence.found(FIRMWARE))),
            packages=known(partial(_packages, evidence)),
            automatic=known(partial(_automatic, evidence)),
            last_change=known(lambda: packages.last_change(evidence.text_or_none(HISTORY) or "")),
            persistenced=known(partial(_persistenced, evidence)),
            variables=known(partial(_variables, evidence)),
            complaints=known(lambda: complaints(evidence.text(DMESG).splitlines())),
        )


def _loaded(evidence: Evidence) -> str:
    text = evidence.text_or_none(VERSION)
    if text is None:  # a container's /proc may lack it
        return (evidence.text_or_none(MODULE_VERSION) or "").strip()
    return module_version(text)


def module_version(text: str) -> str:
    """Return the version in the text of /proc/driver/nvidia/version."""
    match = _LOADED.search(text)
    if not match:
        raise Unreadable(f"{VERSION.path} holds no version: {text[:80]!r}")
    return match[1]


def same_version(one: str, other: str) -> bool:
    """Return whether two driver versions are one; what is no version equals only itself."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def _parameters(text: str) -> dict[str, str]:
    """Return the module's options, which stand as "Name: value"."""
    return {
        key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in text.splitlines()) if colon
    }


def _smi(evidence: Evidence) -> Smi:
    answer = evidence.answers.get(SMI.key)
    if answer is not None and answer.failure == "timeout":
        return Smi("nvidia-smi", None, "", "", answer.reason)
    raw = evidence.value(SMI)
    lines = [line for line in f"{raw['stdout']}\n{raw['stderr']}".splitlines() if line.strip()]
    said = lines[-1] if lines and raw["exit"] else ""
    return Smi(str(raw["path"]), raw["exit"], said, str(raw["skipped"]), str(raw["hung"]))


def _packages(evidence: Evidence) -> tuple[Package, ...]:
    found: list[Package] = []
    if not evidence.absent(DPKG):  # it ends with 1 where a pattern fits nothing
        found += packages.dpkg(evidence.value(DPKG)["stdout"])
    if not evidence.absent(RPM):
        found += packages.rpm(evidence.text(RPM))
    return tuple(found)


def _automatic(evidence: Evidence) -> Automatic:
    installed = () if evidence.absent(DPKG) else _packages(evidence)
    apt = packages.apt_automatic(_texts(evidence, APT), _texts(evidence, PREFERENCES).values(), installed)
    if apt.service:
        return apt
    return packages.dnf_automatic(
        evidence.text_or_none(DNF_AUTOMATIC),
        evidence.found(DNF_TIMERS),
        evidence.text_or_none(DNF),
        [evidence.text_or_none(lock) for lock in LOCKS],
    )


def _persistenced(evidence: Evidence) -> Daemon:
    no_systemd = evidence.absent(PERSISTENCED) or "connect to bus" in evidence.value(PERSISTENCED)["stderr"]
    if no_systemd:
        return Daemon(installed=False, active=False, command="")
    fields = assignments(evidence.text(PERSISTENCED))
    command = re.search(r"argv\[\]=([^;]*)", fields.get("ExecStart", ""))
    return Daemon(
        installed=fields["LoadState"] == "loaded",
        active=fields["ActiveState"] == "active",
        command=command[1].strip() if command else "",
    )


def _variables(evidence: Evidence) -> tuple[Variable, ...]:
    files: dict[str, str] = {}
    for probe in ENVIRONMENT:
        if isinstance(probe, Glob):
            files |= _texts(evidence, probe)
        else:
            files[probe.path] = evidence.text_or_none(probe) or ""
    return environment.harmful(files)


def _texts(evidence: Evidence, probe: Glob) -> dict[str, str]:
    """Return {path: text}; Unreadable where one of them may not be read."""
    files = evidence.found(probe)
    unread = next((path for path, text in files.items() if text is None), "")
    if unread:
        raise Unreadable(f"{unread} may not be read by this user")
    return files
