"""What dpkg, rpm, apt's and dnf's files say in; the driver's packages, who may move them, and what last did, out."""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# The packages whose files must be of the kernel module's very version. Debian's nvidia-persistenced, nvidia-modprobe,
# nvidia-settings and the *-common ones go their own way, and so do the Container Toolkit's and CUDA's.
_DRIVER = re.compile(
    r"(?:libcuda1|libcuda-[\w]+|libnvidia-(?:ml1|ptxjitcompiler1|cfg1|compute|decode|encode|nscq|gl|extra|fbc1|cfg1-[\w-]+)"
    r"|nvidia-(?:driver|dkms|kernel-(?:dkms|open-dkms|source|support)|open-kernel-dkms|utils|compute-utils|headless|smi"
    r"|fabricmanager|fabric-manager|imex|open)|cuda-drivers|kmod-nvidia|dkms-nvidia)(?:-[\w.-]+)?"
)
_NOT_DRIVER = re.compile(r"nvidia-driver-(?:pinning|assistant|local-repo)|nvidia-open-\w*repo")
_UPSTREAM = re.compile(r"(?:^|:)(\d{3}\.\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Package:
    """An installed package; held where the package manager was told to leave it as it is."""

    name: str
    version: str
    held: bool = False

    @property
    def upstream(self) -> str:
        """The driver version in its version, "" where it has none: "580.95.05" of "580.95.05-0ubuntu1"."""
        match = _UPSTREAM.search(self.version)
        return match[1] if match else ""

    @property
    def of_driver(self) -> bool:
        """Whether its version must be the kernel module's."""
        name = self.name.partition(":")[0]
        return bool(_DRIVER.fullmatch(name) and self.upstream and not _NOT_DRIVER.match(name))


def dpkg(text: str) -> tuple[Package, ...]:
    """Return the installed packages of lines of name, version and status abbreviation, tabs between them."""
    rows = (line.split("\t") for line in text.splitlines())
    return tuple(
        Package(row[0], row[1], row[2].startswith("h")) for row in rows if len(row) >= 3 and row[2][1:2] == "i"
    )


def rpm(text: str) -> tuple[Package, ...]:
    """Return the installed packages of lines of name and version, a tab between them."""
    rows = (line.split("\t") for line in text.splitlines())
    return tuple(Package(row[0], row[1]) for row in rows if len(row) >= 2)


@dataclass(frozen=True)
class Automatic:
    """A service that upgrades packages by itself, and the patterns of names that it leaves alone."""

    service: str  # "" where none does
    where: str = ""
    excluded: tuple[str, ...] = ()  # regular expressions, matched at a name's beginning

    def moves(self, package: Package) -> bool:
        """Whether it may upgrade a package."""
        name = package.name.partition(":")[0]
        return bool(self.service) and not package.held and not any(re.match(p, name) for p in self.excluded)


def apt_automatic(files: Mapping[str, str], preferences: Iterable[str], installed: Iterable[Package]) -> Automatic:
    """Return what unattended-upgrades may do.

    Args:
        files: {path: text} of /etc/apt/apt.conf.d.
        preferences: texts of /etc/apt/preferences.d.
        installed: packages, unattended-upgrades among them where it is there.
    """
    if not any(package.name.partition(":")[0] == "unattended-upgrades" for package in installed):
        return Automatic("")
    enabled, where, excluded = "0", "", list[str]()
    for path in sorted(files):
        text = re.sub(r"^\s*(?://|#).*$", "", files[path], flags=re.MULTILINE)
        for match in re.finditer(r"APT::Periodic::Unattended-Upgrade\s+\"?(\w+)\"?\s*;", text):
            enabled, where = match[1], path
        for match in re.finditer(
            r"Unattended-Upgrade::Package-Blacklist(?:::)?\s*(?:\{([^}]*)\}|(\"[^\"]*\")\s*;)", text
        ):
            excluded += re.findall(r'"([^"]+)"', match[1] or match[2] or "")
    if enabled == "0":
        return Automatic("")
    pinned = (pattern for text in preferences for pattern in _pinned(text))
    return Automatic("unattended-upgrades", where, tuple(_valid([*excluded, *pinned])))


def _pinned(text: str) -> Iterable[str]:
    """Yield patterns of the packages that a preferences file pins to one exact driver version."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(Package|Pin):\s*(.+?)\s*$", stanza, flags=re.MULTILINE))
        if re.search(r"version\s+(?:\d+:)?\d{3}\.\d+\.\d+", fields.get("Pin", "")):
            yield from (fnmatch.translate(name) for name in fields.get("Package", "").split())


def dnf_automatic(config: str | None, timers: Iterable[str], dnf: str | None, locks: Iterable[str | None]) -> Automatic:
    """Return what dnf-automatic may do.

    Args:
        config: text of /etc/dnf/automatic.conf, None where it is not installed.
        timers: paths of its enabled timers.
        dnf: text of /etc/dnf/dnf.conf, for its exclude lines.
        locks: texts of versionlock.list.
    """
    enabled = [timer for timer in timers if "dnf-automatic" in timer]
    installs = [timer for timer in enabled if "install" in timer]
    applies = re.search(r"^\s*apply_updates\s*=\s*(?:yes|true|1)", config or "", flags=re.MULTILINE | re.IGNORECASE)
    if not enabled or not (applies or installs):
        return Automatic("")
    names = [
        name
        for line in re.findall(r"^\s*exclude(?:pkgs)?\s*=(.*)$", dnf or "", flags=re.MULTILINE)
        for name in re.split(r"[,\s]+", line)
    ]
    locked = [
        line.strip() for text in locks for line in (text or "").splitlines() if line.strip() and line[0] not in "#!"
    ]
    patterns = [fnmatch.translate(name) for name in names if name] + [_locked(line) for line in locked]
    return Automatic("dnf-automatic", (installs or enabled)[0], tuple(_valid(patterns)))


def _locked(line: str) -> str:
    """Return a pattern of the name in a line of versionlock, "nvidia-driver-3:580.95.05-1.el9.*" or a bare glob."""
    name = re.split(r"-(?:\d+:)?\d+[\w.]*-|-\*?\d+:", line)[0]
    return fnmatch.translate(name)


def _valid(patterns: Iterable[str]) -> Iterable[str]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error:
            continue
        yield pattern


@dataclass(frozen=True)
class Change:
    """The last time that driver packages were upgraded: when, by which command, and (name, old, new) of each."""

    date: str
    command: str
    packages: tuple[tuple[str, str, str], ...]


def last_change(history: str) -> Change | None:
    """Return the last upgrade of driver packages in apt's history.log, None where it has none."""
    for block in reversed(re.split(r"\n\s*\n", history)):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", block, flags=re.MULTILINE))
        moved = tuple(
            (name, old, new)
            for name, old, new in re.findall(r"(\S+) \(([^,()]+), ([^,()]+)\)", fields.get("Upgrade", ""))
            if Package(name, new).of_driver
        )
        if moved:
            date = " ".join(fields.get("Start-Date", "").split())
            return Change(date, fields.get("Commandline", "").strip(), moved)
    return None
