"""Make a bundle: a target and what is wanted in; one archive with everything that it needs, and its manifest, out."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from lpxdoctor import __version__, galaxy
from lpxdoctor.airgap import apt, apt_sources, archive, dnf, dnf_sources, images, wheels
from lpxdoctor.airgap.manifest import Image, Item, Manifest, System
from lpxdoctor.airgap.target import Target
from lpxdoctor.airgap.words import Plan, plan
from lpxdoctor.errors import SetupError, UsageError

# Not to be carried about: what is secret is given again where the bundle is applied, and mirrors, whose URLs may have
# a password in them, are not asked there.
_LEFT_OUT = re.compile("password|secret|token|^mirror_")
_USER = re.compile("//[^/@]*@")
# What Ansible's own modules import on a host: the package manager's, which dnf itself depends on, and Docker's.
_FOR_MODULES = {"apt": ("python3-apt", "python3-requests"), "dnf": ("python3-requests",)}

_NOTHING = 1 << 20  # bytes: less is a full disk
_ROOM = "Make room there, or give -o."


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be in a bundle."""

    target: Target
    words: tuple[str, ...] = ()  # playbooks
    kernels: tuple[str, ...] = ()  # releases, which the playbook driver needs to know
    packages: tuple[str, ...] = ()  # by name, with a version as the package manager writes it
    images: tuple[str, ...] = ()
    variables: Mapping[str, Any]  # of the roles


@dataclass(frozen=True, kw_only=True)
class Made:
    """A bundle that was written."""

    file: Path
    manifest: Manifest
    manifest_sha256: str


def create(wanted: Wanted, output: Path, on_step: Callable[[str], None]) -> Made:
    """Fetch everything and write the archive; nothing is left where something could not be had.

    Raises:
        UsageError: the target has no such package, or the archive's name is none.
        SetupError: a program is missing here, or a mirror, index or registry did not give what was asked for.
    """
    archive.check_name(output)
    created = _created()
    try:
        with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".bundle-") as work:
            content = Path(work) / "content"
            try:
                manifest = _gathered(wanted, content, Path(work), created, on_step)
            except SetupError as error:
                # Not every program says so: dnf tells of its database, pip of a wheel.
                if shutil.disk_usage(work).free < _NOTHING:
                    raise SetupError(f"There is no room left beside {output}. {_ROOM}\n{error}") from None
                raise
            on_step(f"Write {output}")
            digest = archive.write(output, manifest, content)
    except OSError as error:
        raise SetupError(
            f"The bundle cannot be put together beside {output}: {error.strerror or error}.\n{_ROOM}"
        ) from error
    return Made(file=output, manifest=manifest, manifest_sha256=digest)


def _gathered(wanted: Wanted, content: Path, work: Path, created: datetime, on_step: Callable[[str], None]) -> Manifest:
    target = wanted.target
    place = galaxy.ensure()
    planned = plan(wanted.words, target, wanted.kernels, wanted.variables, place)
    install = tuple(dict.fromkeys((*_FOR_MODULES[target.manager], *wanted.packages)))
    names = (*install, *planned.packages)
    on_step(f"Read the package lists of {target.name}")
    root = packager(planned, target, wanted.variables, work)
    on_step("Download packages")
    packages = root.fetch(tuple(dict.fromkeys(names)), planned.optional, content / "packages")
    root.write_index(content / "packages", created)
    on_step(f"Download lpxdoctor and its wheels for Python {target.python}")
    found_wheels = wheels.fetch(target, content / "wheels", work, int(created.timestamp()))
    on_step("Copy Ansible's collections")
    collections = _collections(place / "ansible_collections", content / "collections")
    saved: list[Image] = []
    for reference in wanted.images:
        on_step(f"Save the image {reference}")
        saved.append(images.fetch(reference, target, content / "images"))
    given = {**planned.variables, **wanted.variables}
    return Manifest(
        created=created.isoformat(timespec="seconds"),
        lpxdoctor=__version__,
        target=msgspec.convert(target, System, from_attributes=True),
        words=wanted.words,
        variables={name: value for name, value in given.items() if not _LEFT_OUT.search(name)},
        install=install,
        packages=_public(packages),
        wheels=_public(found_wheels),
        collections=collections,
        images=tuple(saved),
        files=archive.files_below(content),
    )


def packager(planned: Plan, target: Target, variables: Mapping[str, Any], work: Path) -> apt.Root | dnf.Root:
    """Return an apt or dnf that works as if this machine were the target, with its sources read."""
    directory = work / target.manager
    if target.manager == "dnf":
        by_dnf = dnf.Root(directory, target)
        by_dnf.prepare(dnf_sources.of(target, planned.sources, variables), planned.streams)
        return by_dnf
    by_apt = apt.Root(directory, target)
    by_apt.prepare(apt_sources.of(target, planned.sources, variables, work), planned.preferences)
    return by_apt


def _public(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items without user names and passwords in the URLs of their sources."""
    return tuple(structs.replace(item, source=_USER.sub("//", item.source)) for item in items)


def _created() -> datetime:
    """Return the time that the bundle bears: with SOURCE_DATE_EPOCH the same inputs give the same bytes."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return datetime.fromtimestamp(int(told), timezone.utc) if told else datetime.now(timezone.utc)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {told!r}, which is no number of seconds.\nUnset or correct it."
        ) from None


def _collections(place: Path, directory: Path) -> tuple[Item, ...]:
    items: list[Item] = []
    for name in sorted(galaxy.requirements()):
        below = name.replace(".", "/", 1)
        shutil.copytree(place / below, directory / "ansible_collections" / below, symlinks=False)
        told = msgspec.json.decode((place / below / "MANIFEST.json").read_bytes())["collection_info"]
        items.append(
            Item(
                name=name,
                version=told["version"],
                file=f"{directory.name}/ansible_collections/{below}",
                source=str(told.get("repository") or place),
            )
        )
    return tuple(items)
