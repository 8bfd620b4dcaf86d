"""The distribution: a copy of the checkout in, an sdist, a wheel of it and a clean installation out."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_tools import tracked

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).with_name("lpxdoctor")
SHIPPED = ("lpxdoctor", "checks", "playbooks", "images")
# What lies about in a working copy and must not leave it.
IGNORED = ("playbooks/site.vault", "checks/__pycache__/boot.pyc", "images/.mypy_cache/boot.json", "lpxdoctor/old.pyc")

pytestmark = pytest.mark.slow


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from a copy of the checkout with ignored files in it, and the wheel from the sdist."""
    copy, unpacked = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("sdist")
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    run("git", "check-ignore", "--no-index", *IGNORED, cwd=ROOT)
    for name in IGNORED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("must not leave")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", unpacked, cwd=copy)
    (sdist,) = unpacked.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = (path for path in unpacked.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", unpacked, cwd=source)
    (built,) = unpacked.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program installed from the wheel into a virtual environment with only the locked dependencies."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", home, cwd=home)
    pip = (home / "bin/python", "-m", "pip", "-qq", "install")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements.lock", cwd=home)
    run(*pip, "--no-index", "--no-deps", wheel, cwd=home)
    return home / "bin/lpxdoctor"


def test_the_wheel_has_what_is_tracked_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    moved = {name.replace("lpxdoctor/_bundled/", "", 1) for name in inside}
    assert moved == {name for name in tracked() if name.split("/")[0] in SHIPPED}


def test_scripts_stay_executable(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        mode = archive.getinfo("lpxdoctor/_bundled/images/cpu/build").external_attr >> 16
    assert mode & 0o111


def test_an_installation_has_the_checks_of_the_checkout(installed: Path) -> None:
    there = json.loads(run(installed, "checks", "--format", "json", cwd=Path("/")))
    here = json.loads(run(PROGRAM, "checks", "--format", "json", cwd=ROOT))
    assert there == here
    assert len(there) > 0


def test_an_installation_judges_a_host(installed: Path) -> None:
    done = subprocess.run(
        (installed, "check", "--no-container-test", "--format", "json"),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["schema"] == 1, done.stderr
