"""Hosts that cannot be reached or lack something: each case has one clear error, and nothing is changed."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lpxdoctor import bundled, inventory, playbook
from lpxdoctor.errors import SetupError
from lpxdoctor.playbook import State, TaskEvent
from tests.lab.engine import docker, free_port, wait_until
from tests.lab.fixtures import InventoryWriter
from tests.lab.hosts import Host
from tests.lab.said import NONE, Doctor, Said, inspect, no_trace, one_error, with_variables

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def deploy_to(doctor: Doctor, model_dir: Path, tmp_path: Path) -> Callable[..., Said]:
    """Return what deploys to one host that has these inventory variables."""

    def deploy(**variables: object) -> Said:
        hosts = tmp_path / "hosts.yml"
        hosts.write_text(yaml.safe_dump({"all": {"hosts": {"gpu-1": variables}}}))
        return doctor("deploy", "-i", hosts, f"--name={NONE}", "--model", model_dir, "--variant=cpu")

    return deploy


def test_a_host_that_does_not_answer(deploy_to: Callable[..., Said]) -> None:
    with socket.socket() as silent:  # takes connections, and never says anything
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        said = deploy_to(ansible_host="127.0.0.1", ansible_port=silent.getsockname()[1])
        silent.settimeout(60)
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):  # so nobody waited twice
            silent.accept()
    one_error(said, "gpu-1 cannot be reached by SSH: it did not answer within 10 s.", "Nothing was changed.")


def test_a_host_without_ssh(deploy_to: Callable[..., Said]) -> None:
    said = deploy_to(ansible_host="127.0.0.1", ansible_port=free_port())
    one_error(said, "gpu-1 cannot be reached by SSH: nothing listens for SSH there.")


def test_a_host_whose_name_is_unknown(deploy_to: Callable[..., Said]) -> None:
    one_error(deploy_to(ansible_host="gpu-1.invalid"), "no address is known for its name.")


def test_a_host_that_refuses_the_key(deploy_to: Callable[..., Said], plain_host: Host, docker_host: Host) -> None:
    said = deploy_to(**{**plain_host.inventory(), "ansible_ssh_private_key_file": str(docker_host.key)})
    one_error(said, "it does not accept the key or user.", "ssh-copy-id")


def test_a_host_whose_key_is_not_known(deploy_to: Callable[..., Said], plain_host: Host, tmp_path: Path) -> None:
    empty = f"-o UserKnownHostsFile={tmp_path}/none"
    said = deploy_to(**{**plain_host.inventory(), "ansible_ssh_common_args": empty})
    one_error(said, "its host key is not known here.", "fingerprint")


def test_a_host_whose_key_has_changed(
    deploy_to: Callable[..., Said], plain_host: Host, docker_host: Host, tmp_path: Path
) -> None:
    stranger = docker_host.known_hosts.read_text().split(" ", 1)[1]
    forged = tmp_path / "known_hosts"
    forged.write_text(f"[127.0.0.1]:{plain_host.port} {stranger}")
    said = deploy_to(**{**plain_host.inventory(), "ansible_ssh_common_args": f"-o UserKnownHostsFile={forged}"})
    one_error(said, "its host key is not the one that is known here", "ssh-keygen -R")


def test_a_host_without_python(deploy_to: Callable[..., Said], plain_host: Host) -> None:
    said = deploy_to(**{**plain_host.inventory(), "ansible_python_interpreter": "/usr/bin/python3.99"})
    one_error(said, "There is no Python at /usr/bin/python3.99", "apt-get install python3")


def test_a_host_without_docker(deploy_to: Callable[..., Said], plain_host: Host) -> None:
    one_error(deploy_to(**plain_host.inventory()), "There is no Docker Engine", "Install Docker Engine")


def test_a_docker_that_is_stopped(deploy_to: Callable[..., Said], docker_host: Host) -> None:
    docker_host.ssh("systemctl stop docker.socket docker.service; mkdir -p /run; rm -f /run/docker.sock")
    docker_host.ssh("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/run/docker.sock\")'")
    try:
        one_error(deploy_to(**docker_host.inventory()), "The Docker Engine does not run", "systemctl start docker")
    finally:
        docker_host.ssh("rm -f /run/docker.sock; systemctl start docker.socket docker.service")


def test_a_user_who_may_not_use_docker(deploy_to: Callable[..., Said], docker_host: Host) -> None:
    docker_host.ssh("id op 2>/dev/null || useradd --create-home op")
    docker_host.ssh("install -D -o op -g op -m 600 /root/.ssh/authorized_keys /home/op/.ssh/authorized_keys")
    docker_host.ssh("chown op:op /home/op/.ssh")
    said = deploy_to(**{**docker_host.inventory(), "ansible_user": "op"})
    one_error(said, "The user op may not use Docker", "usermod -aG docker op")


def test_one_bad_host_stops_all(
    doctor: Doctor, write_lab_inventory: InventoryWriter, plain_host: Host, shared_engine_host: Host, model_dir: Path
) -> None:
    hosts = write_lab_inventory((plain_host, shared_engine_host))
    said = doctor("deploy", "-i", hosts, f"--name={NONE}", "--model", model_dir, "--variant=cpu")
    one_error(said, "lab-plain: There is no Docker Engine", "Nothing was changed.")
    no_trace(NONE)


def test_a_run_over_ssh_that_is_ended_leaves_nothing_on_the_host(
    plain_host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ansible.cfg").write_text((bundled.PLAYBOOKS / "ansible.cfg").read_text())
    (tmp_path / "trial.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.command: {argv: [sleep, '985.25']}\n"
    )
    monkeypatch.setattr(bundled, "PLAYBOOKS", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    source = inventory.for_hosts({plain_host.name: plain_host.inventory()})
    there = "pgrep -f '[s]leep 985.25' || true"

    def see_it_sleep(event: TaskEvent) -> None:
        """Let the limit be noticed when there is something to end."""
        if event.state is State.STARTED:
            wait_until(lambda: plain_host.ssh(there) != "", "sleep", str, timeout_s=60)

    with pytest.raises(SetupError, match="time limit"):
        playbook.run("trial", [source], collections=tmp_path, on_event=see_it_sleep, limit_s=20)
    wait_until(lambda: plain_host.ssh(there) == "", "the end of sleep", lambda: plain_host.ssh(there), timeout_s=60)


# Answers 200 to everything, as an engine does that is ready; Debian's smallest root has Perl and no Python.
READY = r"""
use Socket;
$SIG{TERM} = sub { exit };
$SIG{PIPE} = "IGNORE";
socket(my $server, PF_INET, SOCK_STREAM, 6) or die $!;
bind($server, sockaddr_in(8000, INADDR_ANY)) and listen($server, 5) or die $!;
while (accept(my $client, $server)) {
    sysread $client, my $request, 4096;
    print $client "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    close $client;
}
"""


def test_several_hosts_get_one_record_each_and_the_first_is_the_canary(
    doctor: Doctor,
    write_lab_inventory: InventoryWriter,
    shared_engine_host: Host,
    docker_host: Host,
    model_dir: Path,
    lab_image: str,
    tmp_path: Path,
) -> None:
    archive = tmp_path / "image.tar"
    docker("save", "--output", str(archive), lab_image)
    docker("exec", "--interactive", docker_host.container_id, "docker", "load", stdin=archive.read_bytes())
    hosts = write_lab_inventory((docker_host, shared_engine_host))  # which sorts them by name
    options = ("-i", hosts, f"--name={NONE}", "--model", model_dir, f"--port={free_port()}", "--variant=cpu")
    ready = with_variables(tmp_path / "ready.yml", engine_command=["perl", "-e", READY, "--"])
    broken = with_variables(tmp_path / "broken.yml", engine_command=["perl", "-e", "exit 3", "--"])
    try:
        said = doctor("deploy", *options, "--image", lab_image, "--vars", ready)
        assert said.status == 0, said
        for host in ("lab-docker", "lab-shared"):
            assert f"{NONE}@{host} on {host}: " in said.out
            assert f"lpxdoctor baseline {NONE}@{host}" in said.out
        before = inspect(NONE)

        said = doctor("deploy", *options, "--image", lab_image, "--vars", broken)
        one_error(said, "lab-docker: The container ended with exit code 3", "Not tried any more: lab-shared.")
        assert inspect(NONE)["State"]["StartedAt"] == before["State"]["StartedAt"]
        assert docker_host.ssh("docker ps --format '{{.Names}}'") == NONE
    finally:
        gone = doctor("undeploy", NONE)
    assert gone.out == f"lab-docker: {NONE} is gone\nlab-shared: {NONE} is gone\n"
    assert docker_host.ssh("docker ps --all --quiet") == ""
    no_trace(NONE)
