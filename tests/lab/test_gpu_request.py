"""The role's requests for GPUs, on a real engine: each stored as it was asked for, so a second run is no change."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lpxdoctor import galaxy
from tests.lab.engine import LABEL, ROOT, docker

ROLE = ROOT / "playbooks/roles/engine"
NAME = f"lab-gpu-request-{os.getpid()}"


def play(way: str, devices: list[str], image: str) -> list[dict[str, object]]:
    """Return a play that creates a container which asks for GPUs; without a GPU it could not be started."""
    task = {
        "community.docker.docker_container": {
            "name": NAME,
            "labels": {LABEL: f"{os.getpid()}"},
            "state": "present",
            "image": image,
            "command": "true",
            "device_requests": "{{ engine_device_requests[way] }}",
            "comparisons": {"*": "strict"},
        }
    }
    files = [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")]
    variables = {"way": way, "engine_gpu_devices": devices, "ansible_python_interpreter": sys.executable}
    return [{"hosts": "localhost", "gather_facts": False, "vars_files": files, "vars": variables, "tasks": [task]}]


def run(argv: Sequence[str | Path], environment: dict[str, str]) -> str:
    """Return what Ansible said, with its errors where it failed."""
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("way", ["cdi", "gpus", "none"])
@pytest.mark.parametrize("devices", [["all"], ["0", "2"]])
def test_the_same_request_is_no_change(way: str, devices: list[str], lab_image: str, tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(json.dumps(play(way, devices, lab_image)))
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "--connection",
        "local",
        "-i",
        "localhost,",
        tmp_path / "play.yml",
    ]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(galaxy.ensure()), "ANSIBLE_NOCOLOR": "1"}
    try:
        said = [run(argv, environment) for _ in range(2)]
    finally:
        docker("rm", "--force", NAME)
    assert "changed=1" in said[0]
    assert "changed=0" in said[1], said[1]
