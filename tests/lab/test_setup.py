"""quickstart and up-docker on machines that lack something: what they make, and what they say when they cannot."""

import json
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.engine import LAB, ROOT, docker, free_port, run
from tests.lab.hosts import Host
from tests.test_tools import tracked

NAME = f"lab-quickstart-{os.getpid()}"


def in_host(host: Host, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ("docker", "exec", *options, host.container_id, "bash", "-c", command)
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def copy_checkout(directory: Path) -> None:
    for name in tracked():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, directory / name)


def test_up_docker_starts_a_stopped_engine_and_then_says_nothing(docker_host: Host) -> None:
    docker("cp", str(LAB / "up-docker"), f"{docker_host.container_id}:/usr/local/bin/up-docker")
    docker_host.ssh("systemctl stop docker.socket docker.service")
    first = in_host(docker_host, "up-docker && docker version --format '{{.Server.Version}}'")
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    again = in_host(docker_host, "up-docker")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_up_docker_without_root_says_what_to_type(docker_host: Host) -> None:
    docker("cp", str(LAB / "up-docker"), f"{docker_host.container_id}:/usr/local/bin/up-docker")
    done = in_host(docker_host, "up-docker", "--user", "nobody")
    assert done.returncode == 1
    assert "usermod -aG docker nobody" in done.stderr


def test_quickstart_without_venv_names_the_package_and_leaves_nothing(plain_host: Host) -> None:
    needed = ("quickstart", "requirements.lock", "pyproject.toml")
    in_host(plain_host, "mkdir /srv/checkout")
    for name in needed:
        docker("cp", str(ROOT / name), f"{plain_host.container_id}:/srv/checkout/{name}")
    done = in_host(plain_host, "cd /srv/checkout && ./quickstart check; echo status $?; ls -A")
    assert "apt-get install python3-venv" in done.stderr
    assert done.stdout.split() == ["status", "1", *sorted(needed)]


@pytest.fixture
def nobodys_checkout() -> Iterator[Path]:
    """Yield a copy of the checkout that belongs to a user without rights; pytest's own directories are closed to it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        copy_checkout(directory)
        for path in (directory, *directory.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
        yield directory


def test_quickstart_check_needs_no_root_no_docker_and_no_second_installation(nobodys_checkout: Path) -> None:
    environment = os.environ | {"HOME": str(nobodys_checkout), "NO_COLOR": "1"}
    argv = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "./quickstart", "check")

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=nobodys_checkout, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    before_s = spent_s()
    first = check()
    assert spent_s() - before_s < 60
    assert first.returncode in (0, 1, 2, 3), first.stderr
    assert "Traceback" not in first.stderr
    assert "installing" in first.stderr
    assert "Docker" in first.stdout or "GPU" in first.stdout
    before = installed_files(nobodys_checkout)
    second = check()
    assert second.returncode == first.returncode
    assert "installing" not in second.stderr
    assert installed_files(nobodys_checkout) == before


def spent_s() -> float:
    """Return a processor's seconds that commands took so far: the clock tells of others that compute here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def quickstart(docker_engine: None, cpu_image: str, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Yield what runs ./quickstart in a copy of the checkout and returns all it said; its deployment is removed."""
    checkout, state = tmp_path / "checkout", tmp_path / "state"
    copy_checkout(checkout)
    settings = {"XDG_STATE_HOME": str(state), "QUICKSTART_NAME": NAME, "QUICKSTART_PORT": str(free_port())}
    environment = os.environ | settings | {"NO_COLOR": "1", "COLUMNS": "120"}

    def run_it() -> str:
        done = subprocess.run(
            ("./quickstart",),
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    try:
        yield run_it
    finally:
        undeploy = (checkout / ".venv/bin/lpxdoctor", "undeploy", NAME, "--local")
        subprocess.run(undeploy, env=environment, timeout=300, check=True)


def test_quickstart_does_the_whole_job_and_nothing_the_second_time(
    quickstart: Callable[[], str], tmp_path: Path
) -> None:
    first = quickstart()
    report = json.loads((tmp_path / f"state/lpxdoctor/{NAME}/check.json").read_text())
    profile = json.loads((tmp_path / f"state/lpxdoctor/{NAME}/baseline.json").read_text())
    assert report["schema"] == 1
    assert [(rung["concurrency"], rung["requests"], rung["errors"]) for rung in profile["rungs"]] == [
        (1, 32, 0),
        (4, 32, 0),
    ]
    for shown in (report["findings"][0]["title"][:40], "TPOT", "check.json", "baseline.json"):
        assert shown in first
    before = machine_state(tmp_path / "checkout")
    second = quickstart()
    assert "installing" not in second
    assert "nothing to change" in second
    assert machine_state(tmp_path / "checkout") == before


def machine_state(checkout: Path) -> tuple[object, ...]:
    """Return what a second run must leave alone: packages, environment, container and its image."""
    packages = run("dpkg-query", "-W")
    container = docker("inspect", "--format", "{{.Id}} {{.Image}} {{.State.StartedAt}}", NAME)
    return packages, installed_files(checkout), container


def installed_files(checkout: Path) -> dict[Path, int]:
    """Return every file of the virtual environment with the nanosecond of its last change; compiled ones left out."""
    files = (checkout / ".venv").rglob("*")
    return {path: path.lstat().st_mtime_ns for path in files if path.suffix != ".pyc" and path.is_file()}
