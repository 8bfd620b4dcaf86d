"""Fetch lpxdoctor and what it depends on as wheels for the target's Python: a target in, files with their URLs out.

pip takes tags for another Python, but judges environment markers by the Python that runs it. So the markers are judged
here, of every wheel that came, until nothing that the target needs is missing.
"""

import os
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lpxdoctor import __version__
from lpxdoctor.airgap.manifest import Item
from lpxdoctor.airgap.programs import said_by
from lpxdoctor.airgap.target import Target
from lpxdoctor.errors import SetupError

PACKAGE = "lpxdoctor"
_CHECKOUT = Path(__file__).resolve().parents[2]
_ROUNDS = 8  # a marker below a marker, below a marker, ...: more is a circle
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


class _Archive(msgspec.Struct):
    hashes: dict[str, str]


class _Download(msgspec.Struct):
    url: str
    archive_info: _Archive


class _Metadata(msgspec.Struct):
    name: str
    version: str
    requires_dist: tuple[str, ...] = ()


class _Chosen(msgspec.Struct):
    download_info: _Download
    metadata: _Metadata


class _Report(msgspec.Struct):
    install: tuple[_Chosen, ...]


def fetch(target: Target, directory: Path, work: Path, epoch: int) -> tuple[Item, ...]:
    """Download the wheels into a directory; work is a directory for what is needed meanwhile.

    Raises:
        SetupError: pip is not here, an index does not answer, or has no wheel for the target's Python.
    """
    directory.mkdir(parents=True)
    chosen = _resolved(target, work)
    wanted = work / "wheels.txt"
    lines = (
        f"{one.metadata.name} @ {one.download_info.url} --hash=sha256:{one.download_info.archive_info.hashes['sha256']}"
        for one in chosen
    )
    wanted.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    said_by(
        (
            *(*_PIP, "download", "--quiet", "--no-deps", "--require-hashes", *options_for(target)),
            *("--dest", str(directory), "--requirement", str(wanted)),
        ),
        f"The wheels for Python {target.python} could not be downloaded",
    )
    own = _own(directory, epoch)
    items = [_item(one, directory) for one in chosen]
    return tuple(sorted((own, *items), key=lambda item: item.file))


def _resolved(target: Target, work: Path) -> tuple[_Chosen, ...]:
    """Return what to download: pip asked again until its choice has all that the target's Python needs."""
    wanted = set(needed(metadata.requires(PACKAGE) or (), target))
    for _ in range(_ROUNDS):
        report = _report(wanted, target, work)
        have = {canonicalize_name(one.metadata.name) for one in report.install}
        extras = _extras(report, wanted)
        more = {
            requirement
            for one in report.install
            for requirement in needed(
                one.metadata.requires_dist, target, extras.get(canonicalize_name(one.metadata.name), frozenset())
            )
            if canonicalize_name(Requirement(requirement).name) not in have
        }
        if not more:
            return report.install
        wanted |= more
    raise SetupError(f"The dependencies for Python {target.python} do not come to an end: {', '.join(sorted(wanted))}.")


def needed(requires: Iterable[str], target: Target, extras: frozenset[str] = frozenset()) -> list[str]:
    """Return the requirements that hold for the target's Python, without their markers."""
    found: list[str] = []
    for line in requires:
        requirement = Requirement(line)
        environments = [_environment(target, extra) for extra in ("", *sorted(extras))]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
            requirement.marker = None
            found.append(str(requirement))
    return found


def _extras(report: _Report, wanted: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the extras of each project that something asks for."""
    asked = [
        Requirement(line)
        for line in (*wanted, *(line for one in report.install for line in one.metadata.requires_dist))
    ]
    found: dict[str, frozenset[str]] = {}
    for requirement in asked:
        name = canonicalize_name(requirement.name)
        # What only an extra asks for is asked for by nobody here, unless the extra is.
        if requirement.marker is None or "extra" not in str(requirement.marker):
            found[name] = found.get(name, frozenset()) | frozenset(requirement.extras)
    return found


def _environment(target: Target, extra: str) -> dict[str, str]:
    return {
        "extra": extra,
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": target.machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
    }


def _report(wanted: Iterable[str], target: Target, work: Path) -> _Report:
    told = said_by(
        (
            *(*_PIP, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", *options_for(target)),
            *("--target", str(work / "nowhere"), *sorted(wanted)),
        ),
        f"No set of wheels was found for Python {target.python}",
    )
    try:
        return msgspec.json.decode(told, type=_Report)
    except msgspec.MsgspecError as error:
        raise SetupError(f"pip's report cannot be read: {error}.\nUpdate pip: python -m pip install -U pip") from None


def options_for(target: Target) -> tuple[str, ...]:
    """Return pip's options for another Python; a wheel for an older C library fits too."""
    platforms = (
        *(f"manylinux_2_{minor}_{target.machine}" for minor in range(target.glibc_minor, 4, -1)),
        *(f"{old}_{target.machine}" for old in ("manylinux2014", "manylinux2010", "manylinux1", "linux")),
    )
    options = ("--only-binary", ":all:", "--implementation", "cp", "--python-version", target.python)
    return (*options, *(word for platform in platforms for word in ("--platform", platform)))


def _own(directory: Path, epoch: int) -> Item:
    """Return the wheel of lpxdoctor itself: built from the checkout that runs, else this version from an index."""
    checkout = (_CHECKOUT / "pyproject.toml").is_file()
    what = f"The wheel of lpxdoctor {__version__} itself could not be had"
    verb = ("wheel", "--wheel-dir") if checkout else ("download", "--dest")
    # The lock files have the build backend: with it, nothing is downloaded to build.
    options = ("--no-build-isolation",) if checkout and find_spec("hatchling") else ()
    wanted = str(_CHECKOUT) if checkout else f"{PACKAGE}=={__version__}"
    # Set for builds: a wheel's members have this time.
    said_by(
        (*_PIP, *verb, str(directory), "--quiet", "--no-deps", *options, wanted),
        what,
        env={"SOURCE_DATE_EPOCH": str(epoch)},
    )
    (file,) = directory.glob(f"{PACKAGE}-*.whl")
    return Item(
        name=PACKAGE,
        version=__version__,
        file=f"{directory.name}/{file.name}",
        source="the checkout that made this bundle" if checkout else "the package index",
    )


def _item(one: _Chosen, directory: Path) -> Item:
    file = os.path.basename(one.download_info.url.partition("#")[0])  # noqa: PTH119 - a URL
    name = unquote(file)
    if not (directory / name).is_file():
        raise SetupError(f"pip did not download {name} from {one.download_info.url}.")
    return Item(
        name=one.metadata.name,
        version=one.metadata.version,
        file=f"{directory.name}/{name}",
        source=one.download_info.url,
    )
