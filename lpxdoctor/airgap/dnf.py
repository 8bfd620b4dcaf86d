"""Ask dnf as if this machine were another: a target, repositories and names in; .rpm files with their URLs out."""

import configparser
import gzip
import lzma
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lpxdoctor.airgap.dnf_sources import Repository
from lpxdoctor.airgap.manifest import Item
from lpxdoctor.airgap.programs import said_by
from lpxdoctor.airgap.target import Target
from lpxdoctor.errors import SetupError

# How this machine reaches mirrors is also how it reaches the target's; nothing else of its configuration is used.
_OWN_SETTINGS = Path("/etc/dnf/dnf.conf")
_KEPT = re.compile(r"(proxy(_\w+)?|ip_resolve|retries|timeout|minrate)$")
_CONFIGURATION = """\
[main]
reposdir={root}/none
plugins=0
gpgcheck=1
install_weak_deps=0
module_platform_id=platform:el{version}
"""


@dataclass(frozen=True)
class Root:
    """A dnf of its own below a directory, which knows of no installed package: what it resolves is whole."""

    directory: Path
    target: Target

    def prepare(self, repositories: Sequence[Repository], streams: Sequence[str]) -> None:
        """Read what the repositories have and choose streams of modules; SetupError where one does not answer."""
        self.directory.mkdir()
        main = _CONFIGURATION.format(root=self.directory, version=self.target.version)
        sections = "".join(one.section() for one in repositories)
        (self.directory / "dnf.conf").write_text(f"{main}{_reach()}{sections}", encoding="utf-8")
        self._dnf(f"The package lists for {self.target.name} could not be fetched", "makecache")
        if streams:
            self._dnf(f"{self.target.name} has no module {', '.join(streams)}", "module", "enable", *streams)

    def fetch(self, names: Sequence[str], optional: Sequence[str], directory: Path) -> tuple[Item, ...]:
        """Download packages with all that they depend on, optional ones where a repository has them.

        dnf compares each package with its repository's index, and the signature with the key: of the package, or of
        the index where only that is signed.

        Returns:
            One item for each file, sorted by file name.

        Raises:
            SetupError: a name is no package of the target, the dependencies cannot be met, a signature is not of the
                repository's key, or a download failed.
        """
        what = f"What {', '.join(names)} depend on could not be had for {self.target.name}"
        asked = ("repoquery", "--queryformat", "%{name}\\n", *optional)
        known = self._dnf(what, *asked).split() if optional else ()
        chosen = (name for name in optional if name in known)
        self._dnf(what, "install", "--downloadonly", "--destdir", str(directory), *names, *chosen)
        files = sorted(directory.glob("*.rpm"))
        form = "%{NAME}\t%{EVR}\t%{NVRA}\n"
        told = said_by(("rpm", "--query", "--package", "--nosignature", "--queryformat", form, *map(str, files)), what)
        rows = [line.split("\t") for line in told.splitlines()]
        located = self._dnf(what, "repoquery", "--location", *(nvra for *_, nvra in rows)).split()
        urls = {url.rpartition("/")[2]: url for url in located}
        return tuple(
            Item(name=name, version=version, file=f"{directory.name}/{file.name}", source=urls[file.name])
            for file, (name, version, _) in zip(files, rows, strict=True)
        )

    def write_index(self, directory: Path, created: datetime) -> None:
        """Write the index of a directory of .rpm files, with the module streams of the repositories they came from."""
        epoch = int(created.timestamp())
        for file in directory.glob("*.rpm"):
            os.utime(file, (epoch, epoch))  # the index has it, and the same files are to give the same index
        what = "The index of the packages could not be made"
        # gzip: what newer ones use by themselves is not read by each older dnf.
        form = ("--general-compress-type", "gz", "--no-database")
        said_by(("createrepo_c", "--quiet", *form, "--revision", str(epoch), str(directory)), what)
        # dnf takes a package of a module only from a repository that tells of the module.
        modules = self.directory / "modules.yaml"
        modules.write_bytes(b"\n".join(_text(file) for file in sorted(self.directory.rglob("*-modules.yaml*"))))
        if modules.stat().st_size:
            options = ("--mdtype", "modules", "--compress-type", "gz")
            said_by(("modifyrepo_c", *options, str(modules), str(directory / "repodata")), what)
        index = directory / "repodata/repomd.xml"
        index.write_text(re.sub(r"<timestamp>\d+<", f"<timestamp>{epoch}<", index.read_text()), encoding="utf-8")

    def _dnf(self, what: str, *argv: str) -> str:
        # dnf wants root to install, also where it only downloads.
        prefix = () if os.geteuid() == 0 else ("unshare", "--map-root-user")
        own = ("--config", str(self.directory / "dnf.conf"), "--installroot", str(self.directory / "root"))
        target = ("--releasever", self.target.version, "--forcearch", self.target.machine)
        return said_by((*prefix, "dnf", *own, *target, "--assumeyes", "--quiet", *argv), what)


def _reach() -> str:
    own = configparser.ConfigParser(interpolation=None, strict=False)
    own.read(_OWN_SETTINGS, encoding="utf-8")
    main = own["main"] if own.has_section("main") else {}
    return "".join(f"{name}={value}\n" for name, value in main.items() if _KEPT.match(name))


def _text(file: Path) -> bytes:
    content = file.read_bytes()
    if file.suffix == ".yaml":
        return content
    if file.suffix == ".gz":
        return gzip.decompress(content)
    if file.suffix == ".xz":
        return lzma.decompress(content)
    raise SetupError(f"The modules of a repository are compressed as {file.suffix}, which cannot be read here.")
