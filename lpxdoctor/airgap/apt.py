"""Ask apt as if this machine were another: a target, sources and names in; .deb files with their URLs out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

from msgspec import structs

from lpxdoctor.airgap.manifest import Item
from lpxdoctor.airgap.programs import said_by
from lpxdoctor.airgap.target import Target

# How this machine reaches mirrors is also how it reaches the target's; nothing else of its configuration is used.
_KEPT = re.compile(r"Acquire::(https?|ftp|Retries|ForceIPv[46])\b")
_URI = re.compile(r"^'(?P<url>[^']+)' (?P<file>\S+) \d+", re.MULTILINE)
_CONFIGURATION = """\
Dir "{root}/";
Dir::Etc "etc";
Dir::Etc::main "none";
Dir::Etc::parts "apt.conf.d";
Dir::Etc::sourcelist "sources.list";
Dir::Etc::sourceparts "none.d";
Dir::Etc::preferences "none";
Dir::Etc::preferencesparts "preferences.d";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "state";
Dir::State::status "{root}/status";
Dir::Cache "cache";
Dir::Log "log";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::Assume-Yes "true";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Check-Valid-Until "true";
"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One line of sources.list."""

    uri: str
    suite: str  # ends with / for a flat repository
    components: tuple[str, ...]
    signed_by: Path

    def line(self, architecture: str) -> str:
        """Return the source as a line of sources.list."""
        return (
            f"deb [arch={architecture} signed-by={self.signed_by}] {self.uri} {self.suite} {' '.join(self.components)}"
        )


@dataclass(frozen=True)
class Root:
    """An apt of its own below a directory, which knows of no installed package: what it resolves is whole."""

    directory: Path
    target: Target

    @property
    def env(self) -> dict[str, str]:
        """Return the environment in which apt's programs work in this directory and with these settings."""
        return {"APT_CONFIG": str(self.directory / "apt.conf")}

    def prepare(self, sources: Sequence[Source], preferences: Sequence[str] = ()) -> None:
        """Fetch what the sources have; SetupError where one does not answer or is not signed by its key."""
        for place in (
            *("etc/apt.conf.d", "etc/preferences.d", "etc/none.d"),
            *("state/lists/partial", "cache/archives/partial", "log"),
        ):
            (self.directory / place).mkdir(parents=True, exist_ok=True)
        (self.directory / "status").touch()
        own = _CONFIGURATION.format(root=self.directory, architecture=self.target.architecture)
        (self.directory / "apt.conf").write_text(own + _reach(), encoding="utf-8")
        lines = "".join(f"{source.line(self.target.architecture)}\n" for source in sources)
        (self.directory / "etc/sources.list").write_text(lines, encoding="utf-8")
        (self.directory / "etc/preferences.d/own").write_text("\n".join(preferences), encoding="utf-8")
        # Without the option, a source that does not answer is only a warning, and packages would be missing.
        said_by(
            ("apt-get", "update", "--quiet", "--option", "APT::Update::Error-Mode=any"),
            f"The package lists for {self.target.name} could not be fetched",
            env=self.env,
        )

    def resolved(self, names: Sequence[str], optional: Sequence[str]) -> tuple[Item, ...]:
        """Return packages with all that they depend on, optional ones where a source has them, sorted by file name.

        Raises:
            SetupError: a name is no package of the target, or the dependencies cannot be met.
        """
        listed = self._install(names, optional, "--print-uris")
        urls = {found["file"]: found["url"] for found in _URI.finditer(listed)}
        items: list[Item] = []
        for file, url in sorted(urls.items()):
            name, version, _ = file.removesuffix(".deb").split("_")
            # An epoch's colon is %3a in apt's cache.
            items.append(Item(name=name, version=unquote(version), file=file, source=url))
        return tuple(items)

    def fetch(self, names: Sequence[str], optional: Sequence[str], directory: Path) -> tuple[Item, ...]:
        """Download what these resolve to; the items' files are below the directory's parent.

        Raises:
            SetupError: it cannot be resolved, or a download failed.
        """
        items = self.resolved(names, optional)
        self._install(names, optional, "--download-only")
        directory.mkdir(parents=True)
        for item in items:
            (self.directory / "cache/archives" / item.file).rename(directory / item.file)
        return tuple(structs.replace(item, file=f"{directory.name}/{item.file}") for item in items)

    def _install(self, names: Sequence[str], optional: Sequence[str], mode: str) -> str:
        what = f"What {', '.join(names)} depend on could not be had for {self.target.name}"
        told = said_by(("apt-cache", "madison", *optional), what, env=self.env)
        known = {line.partition("|")[0].strip() for line in told.splitlines()}
        chosen = (name for name in optional if name in known)
        return said_by(("apt-get", "install", "--quiet", mode, *names, *chosen), what, env=self.env)

    def write_index(self, directory: Path, created: datetime) -> None:
        """Write Packages and Release for a directory of .deb files; the same files give the same bytes."""
        index = "\n".join(_stanza(package) for package in sorted(directory.glob("*.deb"))).encode()
        (directory / "Packages").write_bytes(index)
        release = (
            "Origin: lpxdoctor\nLabel: lpxdoctor bundle\nSuite: bundle\n"
            f"Date: {format_datetime(created, usegmt=True)}\n"
            f"SHA256:\n {sha256(index).hexdigest()} {len(index)} Packages\n"
        )
        (directory / "Release").write_text(release, encoding="utf-8")


def _stanza(package: Path) -> str:
    control = said_by(("dpkg-deb", "--field", str(package)), f"{package.name} cannot be read")
    content = package.read_bytes()
    return (
        f"{control.rstrip()}\nFilename: ./{package.name}\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n"
    )


def _reach() -> str:
    dumped = said_by(("apt-config", "dump", "--format", '%F "%v";%n', "Acquire"), "apt's settings cannot be read")
    return "".join(f"{line}\n" for line in dumped.splitlines() if _KEPT.match(line))
