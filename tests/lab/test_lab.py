"""The lab itself: what other tests take for granted about its hosts, registry and engine."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.lab.engine import LABEL, docker, remove_orphans, wait_until
from tests.lab.fixtures import InventoryWriter
from tests.lab.hosts import Host
from tests.lab.registry import Registry
from tests.lab.vllm import Server


def test_ssh_reaches_a_host_with_systemd_python_and_sudo(plain_host: Host) -> None:
    said = plain_host.ssh("ps -p 1 -o comm=; python3 -c 'import requests'; sudo -n id -u; command -v docker || true")
    assert said.split() == ["systemd", "0"]


def test_a_host_key_that_is_not_known_is_refused(plain_host: Host, docker_host: Host) -> None:
    stranger = docker_host.known_hosts.read_text().split(" ", 1)[1]
    forged = plain_host.known_hosts.with_name("forged")
    forged.write_text(f"[127.0.0.1]:{plain_host.port} {stranger}")
    options = tuple(o.replace(str(plain_host.known_hosts), str(forged)) for o in plain_host.ssh_options())
    argv = ("ssh", *options, "-p", str(plain_host.port), "root@127.0.0.1", "true")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_a_host_comes_back_after_a_reboot(docker_host: Host) -> None:
    started = ("cut", "-d ", "-f22", "/proc/1/stat")  # when its first process was
    before = docker("exec", docker_host.container_id, *started)
    docker_host.ssh("nohup sh -c 'sleep 1; systemctl reboot' >/dev/null 2>&1 &")

    def is_back() -> bool:
        argv = ("docker", "exec", docker_host.container_id, *started)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:  # asked while it went down
            return False
        return done.returncode == 0 and done.stdout.strip() != before

    wait_until(is_back, "its reboot", lambda: docker("logs", docker_host.container_id), 300)
    docker_host.wait_until_up()
    assert docker_host.ssh("systemctl is-active docker") == "active"


NOBODY = 1 << 22  # the kernel gives process numbers below it


def is_there(identity: str) -> bool:
    return identity in docker("ps", "--all", "--no-trunc", "--quiet")


@pytest.mark.parametrize(
    ("labels", "stays"),
    [
        ((f"{LABEL}={NOBODY}",), False),
        ((f"lpxdoctor.engine=lab-vllm-{NOBODY}",), False),
        ((f"{LABEL}={os.getpid()}",), True),
        ((f"lpxdoctor.engine=lab-vllm-{os.getpid()}",), True),
        ((f"lpxdoctor.engine={NOBODY}",), True),  # somebody's own
        ((), True),
    ],
)
def test_what_a_run_that_was_killed_left_is_removed(lab_image: str, labels: tuple[str, ...], stays: bool) -> None:
    identity = docker("create", *(part for label in labels for part in ("--label", label)), lab_image, "true")
    try:
        remove_orphans()
        if not stays:  # another worker may be about to remove it, too
            wait_until(lambda: not is_there(identity), "its removal", str, 60)
        assert is_there(identity) == stays
    finally:
        subprocess.run(("docker", "rm", "--force", identity), capture_output=True, check=False)


def test_an_engine_of_its_own_runs_a_container(
    docker_host: Host, lab_image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    docker("save", "--output", str(archive), lab_image)
    docker("exec", "--interactive", docker_host.container_id, "docker", "load", stdin=archive.read_bytes())
    said = docker_host.ssh(f"docker run --rm {lab_image} cat /etc/os-release")
    assert "VERSION_CODENAME=" in said
    assert docker_host.ssh("docker info --format '{{.ID}}'") != docker("info", "--format", "{{.ID}}")


def test_a_shared_engine_is_this_machines(shared_engine_host: Host) -> None:
    assert shared_engine_host.ssh("docker info --format '{{.ID}}'") == docker("info", "--format", "{{.ID}}")


def test_ansible_reaches_every_kind_of_host(
    plain_host: Host, docker_host: Host, shared_engine_host: Host, write_lab_inventory: InventoryWriter
) -> None:
    inventory = write_lab_inventory((plain_host, docker_host, shared_engine_host))
    ansible = Path(sys.executable).with_name("ansible")
    argv = (ansible, "-i", inventory, "--timeout", "60", "-m", "ansible.builtin.ping", "gpu_servers")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.count('"ping": "pong"') == 3, done.stdout + done.stderr


def test_an_image_pulled_by_digest_is_the_one_pushed(lab_registry: Registry, lab_image: str) -> None:
    pinned = lab_registry.push(lab_image, "debian")
    docker("pull", "--quiet", pinned)
    assert docker("image", "inspect", "--format", "{{.Id}}", pinned) == docker(
        "image", "inspect", "--format", "{{.Id}}", lab_image
    )
    docker("rmi", pinned)


def test_vllm_serves_the_tiny_model(vllm_server: Server) -> None:
    with urllib.request.urlopen(f"{vllm_server.url}/v1/models", timeout=60) as response:
        assert vllm_server.model in response.read().decode()
