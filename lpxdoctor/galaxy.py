"""The Ansible collections that the playbooks need: their pinned versions in, a directory that has them out."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import msgspec
import yaml
from packaging.version import Version

from lpxdoctor import bundled
from lpxdoctor.errors import SetupError
from lpxdoctor.state import made, state_dir

REQUIREMENTS = bundled.PLAYBOOKS / "requirements.yml"
WHEEL = bundled.PLAYBOOKS / "requirements.txt"
GALAXY_LIMIT_S = 60
DOWNLOAD_LIMIT_S = 600


class _Info(msgspec.Struct):
    version: str


class _Manifest(msgspec.Struct):
    collection_info: _Info


def ensure() -> Path:
    """Return a directory with all collections in versions that are new enough, fetching them once where there is none.

    Raises:
        SetupError: neither Galaxy nor PyPI could be reached.
    """
    own = state_dir() / "collections"
    for place in (*_installed_places(), own):
        if satisfied(place):
            return place
    with _alone(made("")), tempfile.TemporaryDirectory(dir=made(""), prefix=".collections-") as work:
        if satisfied(own):
            return own
        fetched = Path(work) / "fetched"
        said = _from_galaxy(fetched)
        if not satisfied(fetched):
            said += _from_wheel(Path(work), fetched)
        if not satisfied(fetched):
            raise SetupError(
                f"The Ansible collection community.docker could be had neither from Galaxy nor from PyPI:\n{said}\n"
                f"Where a network is: ansible-galaxy collection install -r {REQUIREMENTS} -p {own}\n"
                "and carry that directory here, or set HTTPS_PROXY and run this again."
            )
        shutil.rmtree(own, ignore_errors=True)
        fetched.rename(own)
    return own


@contextmanager
def _alone(directory: Path) -> Generator[None]:
    """Keep other processes out until the block ends: one would take the directory away that another has just made."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def requirements() -> dict[str, Version]:
    """Return the pinned collections: name -> lowest version."""
    rows = yaml.safe_load(REQUIREMENTS.read_text(encoding="utf-8"))["collections"]
    return {row["name"]: Version(str(row["version"])) for row in rows}


def satisfied(place: Path) -> bool:
    """Tell whether a directory has every collection, new enough and of the same major version."""
    return all(_fits(_version(place, name), wanted) for name, wanted in requirements().items())


def _fits(found: Version | None, wanted: Version) -> bool:
    return found is not None and found.major == wanted.major and found >= wanted


def _version(place: Path, name: str) -> Version | None:
    manifest = place / "ansible_collections" / name.replace(".", "/", 1) / "MANIFEST.json"
    try:
        return Version(msgspec.json.decode(manifest.read_bytes(), type=_Manifest).collection_info.version)
    except (OSError, msgspec.MsgspecError):
        return None


def _installed_places() -> Iterable[Path]:
    named = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "")
    yield from (Path(place).expanduser() for place in named.split(":") if place)
    yield Path.home() / ".ansible" / "collections"
    yield Path("/usr/share/ansible/collections")
    # The PyPI package ansible brings its collections beside itself.
    spec = importlib.util.find_spec("ansible_collections")
    if spec is not None:
        yield from (Path(place).parent for place in spec.submodule_search_locations or ())


def _from_galaxy(target: Path) -> str:
    return _said(
        ("-m", "ansible", "galaxy", "collection", "install", "--requirements-file", str(REQUIREMENTS)),
        ("--collections-path", str(target), "--timeout", "10"),
        limit_s=GALAXY_LIMIT_S,
    )


def _from_wheel(work: Path, target: Path) -> str:
    said = _said(
        ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
        ("--ignore-requires-python", "--require-hashes", "--requirement", str(WHEEL), "--dest", str(work)),
        limit_s=DOWNLOAD_LIMIT_S,
    )
    wanted = tuple(f"ansible_collections/{name.replace('.', '/', 1)}/" for name in requirements())
    for wheel in work.glob("ansible-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target, [name for name in archive.namelist() if name.startswith(wanted)])
    return said


def _said(*arguments: tuple[str, ...], limit_s: float) -> str:
    """Run a module of this Python; return the end of what it said, empty when all went well."""
    argv = (sys.executable, *(word for words in arguments for word in words))
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{argv[3]} did not end within {limit_s:.0f} s\n"
    if done.returncode == 0:
        return ""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "\n".join(lines[-3:]) + "\n"
