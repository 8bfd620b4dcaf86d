"""Fixtures of real parts, each started by the first test that asks for it and removed when the session ends."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.lab import llama, registry, vllm
from tests.lab.engine import LAB, ROOT, build, remove_orphans, run
from tests.lab.hosts import Engine, Host, started_host, write_inventory

HostStarter = Callable[[str, Engine], AbstractContextManager[Host]]
InventoryWriter = Callable[[Sequence[Host]], Path]
REQUIREMENTS = LAB / "llama_cpp.txt"
# Compiled here, as there is no wheel of it: without optimisation that takes a minute on two cores, with it several.
BUILD = {
    "CMAKE_ARGS": "-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF "
    "-DCMAKE_CXX_FLAGS=-O0 -DCMAKE_C_FLAGS=-O1",
    "CMAKE_BUILD_PARALLEL_LEVEL": "2",
}


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Make a Docker Engine answer on this machine, without what a run that was killed has left in it."""
    run(LAB / "up-docker", timeout_s=600)
    remove_orphans()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the tiny model with random weights; every lab host has it at the same path."""
    directory = tmp_path_factory.mktemp("model")
    directory.chmod(0o755)  # the engine in the container need not be root
    run("python3", ROOT / "images/cpu/make_model.py", directory)
    return directory


@pytest.fixture(scope="session")
def start_host(docker_engine: None, model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> HostStarter:
    """Return a context manager of a fresh host, given its name and its kind of engine."""
    return lambda name, engine: started_host(name, engine, tmp_path_factory.mktemp(name), (model_dir,))


@pytest.fixture(scope="session")
def plain_host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a host without Docker."""
    with start_host("lab-plain", Engine.NONE) as host:
        yield host


@pytest.fixture(scope="session")
def docker_host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a host with a Docker Engine of its own, which has the images that tests before loaded into it."""
    with start_host("lab-docker", Engine.OWN) as host:
        yield host


@pytest.fixture(scope="session")
def shared_engine_host(start_host: HostStarter) -> Iterator[Host]:
    """Yield a host whose Docker Engine, images and 127.0.0.1 are this machine's."""
    with start_host("lab-shared", Engine.SHARED) as host:
        yield host


@pytest.fixture
def write_lab_inventory(tmp_path: Path) -> InventoryWriter:
    """Return a function that writes an Ansible inventory of the hosts given, in the group gpu_servers."""
    return lambda hosts: write_inventory(tmp_path / "inventory.yml", hosts)


@pytest.fixture(scope="session")
def lab_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Registry]:
    """Yield a registry on 127.0.0.1 that starts empty."""
    with registry.started(tmp_path_factory.mktemp("registry")) as started:
        yield started


@pytest.fixture(scope="session")
def lab_image(docker_engine: None) -> str:
    """Return the name of a small local image: this machine's distribution, with a shell."""
    return build(LAB / "build", "debian")


@pytest.fixture(scope="session")
def cpu_image(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of the image with the real vLLM CPU engine; built when it is not there.

    One worker of a run gets it: two engines on two cores would be measured at once, and time out.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        try:
            (tmp_path_factory.getbasetemp().parent / "engine").touch(exist_ok=False)
        except FileExistsError:
            pytest.fail("Another worker has the engine: their tests are one group, for --dist loadgroup alone.")
    return build(ROOT / "images/cpu/build")


@pytest.fixture(scope="session")
def vllm_server(cpu_image: str, model_dir: Path) -> Iterator[vllm.Server]:
    """Yield a real vLLM on 127.0.0.1 that serves the tiny model."""
    with vllm.started(cpu_image, model_dir) as server:
        yield server


@pytest.fixture(scope="session")
def llama_python(pytestconfig: pytest.Config) -> Path:
    """Return the interpreter of an environment with the server, made once for all sessions on this machine."""
    home = pytestconfig.cache.mkdir("llama-cpp")
    with (home / "lock").open("w") as lock:  # another process of the same session waits for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = home / "requirements.txt"
        if not made.exists() or made.read_bytes() != REQUIREMENTS.read_bytes():
            subprocess.run((sys.executable, "-m", "venv", "--clear", home / "venv"), check=True)
            pip = (home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "-r", REQUIREMENTS)
            subprocess.run(pip, check=True, timeout=900, env={**os.environ, **BUILD})
            made.write_bytes(REQUIREMENTS.read_bytes())
    return home / "venv/bin/python"


@pytest.fixture(scope="session")
def llama_image(docker_engine: None, llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of the image with llama.cpp's server, which takes vLLM's options."""
    return llama.image(build(LAB / "build", "host"), llama_python, tmp_path_factory.mktemp("llama-image"))


@pytest.fixture(scope="session")
def llama_model(llama_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the tiny model that llama.cpp's server takes."""
    return llama.model(llama_python, tmp_path_factory.mktemp("llama-model"))
