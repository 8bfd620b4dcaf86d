"""NVIDIA's real libraries, from Debian's non-free component, on a machine without a GPU: what they answer."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import bundled
from lpxdoctor.evidence import from_json
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.gpu import Gpus

PACKAGES = ("libnvidia-ml1", "libcuda1")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "nvidia-user-space"
NODES = (Path("/dev/nvidiactl"), Path("/dev/nvidia-uvm"))


@pytest.fixture(scope="module")
def libraries() -> Path:
    """Return the directory of the libraries, unpacked beside the checkout and not installed; fetched once."""
    release = platform.freedesktop_os_release()
    if release["ID"] != "debian":
        pytest.skip("the libraries come from Debian's non-free component")
    root = CACHE / release["VERSION_CODENAME"]
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:  # another run of the tests waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(root.glob("root/usr/lib/*/nvidia/current/libcuda.so.1")):
            _fetch(root, release["VERSION_CODENAME"])
    return next(root.glob("root/usr/lib/*/nvidia/current"))


def _fetch(root: Path, codename: str) -> None:
    """Download with lists of our own: this machine's sources stay as they are."""
    lines = ("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages")
    targets = subprocess.run(lines, capture_output=True, text=True, check=True).stdout.splitlines()
    mirror = next(line.split()[1] for line in targets if line.split()[0] == codename)
    for directory in ("lists/partial", "cache/archives/partial", "debs"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (root / "sources.list").write_text(f"deb [signed-by={keys}] {mirror} {codename} non-free\n", encoding="utf-8")
    settings = {
        "Dir::Etc::SourceList": root / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root / "cache",
    }
    apt = ["apt-get", "-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*apt, "download", *PACKAGES], check=True, cwd=root / "debs", stdout=subprocess.DEVNULL)
    half = root / "half"  # of it a run that was killed may have left some
    shutil.rmtree(half, ignore_errors=True)
    for package in (root / "debs").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(half)], check=True)
    shutil.rmtree(root / "root", ignore_errors=True)
    half.rename(root / "root")


def run(program: Path, libraries: Path) -> Any:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(Path("/sys/module/nvidia").is_dir(), reason="this machine has the driver itself")
def test_nvml_answers_that_the_driver_is_not_loaded_and_makes_no_node(libraries: Path) -> None:
    before = [node.exists() for node in NODES]
    answer = run(bundled.PROGRAMS / "nvml.py", libraries)
    assert answer["error"] == {"call": "nvmlInit_v2", "code": 9}
    assert "libnvidia-ml.so." in answer["library"]
    assert [node.exists() for node in NODES] == before  # left alone, the library makes /dev/nvidiactl for root


@pytest.mark.skipif(Path("/sys/module/nvidia").is_dir(), reason="this machine has the driver itself")
def test_cuda_answers_that_there_is_no_device_and_makes_no_node(libraries: Path) -> None:
    before = [node.exists() for node in NODES]
    answer = run(bundled.IMAGES / "probe" / "cuda.py", libraries)
    assert answer["error"] == {"call": "cuInit", "code": 100, "name": "CUDA_ERROR_NO_DEVICE"}
    assert answer["cuda"]
    assert [node.exists() for node in NODES] == before


@pytest.mark.skipif(Path("/sys/module/nvidia").is_dir(), reason="this machine has the driver itself")
def test_both_go_through_the_collector_into_facts(libraries: Path) -> None:
    # The loader reads LD_LIBRARY_PATH when a process starts, and programs run in forks of the collector.
    script = (
        "import sys; from lpxdoctor import bundled; from lpxdoctor.collect import collect; "
        "from lpxdoctor.evidence import to_json; from lpxdoctor.facts.cuda import CUDA; "
        "from lpxdoctor.facts.gpu import NVML; "
        "programs = {'nvml': bundled.PROGRAMS / 'nvml.py', 'cuda': bundled.IMAGES / 'probe' / 'cuda.py'}; "
        "sys.stdout.write(to_json(collect((NVML, CUDA), programs)))"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, env=environment, cwd=CACHE.parents[1], capture_output=True, text=True, check=True)
    evidence = from_json(done.stdout)
    gpus, cuda = Gpus.parse(evidence), Cuda.parse(evidence)
    assert gpus.error is not None
    assert gpus.error.name == "DRIVER_NOT_LOADED"
    assert cuda.error is not None
    assert cuda.error.meaning == "no GPU is visible to CUDA"
    assert cuda.library_version == gpus.library.partition(".so.")[2]
