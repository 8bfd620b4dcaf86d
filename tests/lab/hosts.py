"""Servers to provision: a kind of Docker Engine in, a container with systemd that answers SSH on 127.0.0.1 out."""

import io
import subprocess
import tarfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import yaml

from tests.lab.engine import LAB, build, container, docker, free_port, run, wait_until


class Engine(Enum):
    """Which Docker Engine a host has; the value is the image of tests/lab/build."""

    NONE = "host"
    OWN = "docker-host"
    GPU = "gpu-host"  # one of its own too, a kernel to boot, and the user space of NVIDIA's driver
    SHARED = "shared-host"  # the outer machine's: images are there already, and paths are the outer machine's


@dataclass(frozen=True, kw_only=True)
class Host:
    """A running host: root may log in with the key, and its host key is the one line of known_hosts."""

    name: str
    container_id: str
    port: int
    key: Path
    known_hosts: Path

    def ssh_options(self) -> tuple[str, ...]:
        """Return ssh's options; the host key is checked."""
        known = f"UserKnownHostsFile={self.known_hosts}"
        return ("-i", str(self.key), "-o", known, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes")

    def ssh(self, command: str, timeout_s: float = 180) -> str:
        """Run a shell command on the host as root and return its stdout; fail the test when it fails."""
        return run("ssh", *self.ssh_options(), "-p", str(self.port), "root@127.0.0.1", command, timeout_s=timeout_s)

    def is_up(self) -> bool:
        """Say whether all services are started; the host key is then read through the engine, not the network."""
        state = ("docker", "exec", self.container_id, "systemctl", "is-system-running")
        try:
            done = subprocess.run(state, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:  # its systemd is as slow as the machine is busy
            return False
        if done.stdout.strip() != "running":
            return False
        public = docker("exec", self.container_id, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}\n")
        return True

    def wait_until_up(self) -> None:
        """Wait for a start of it, which takes seconds, and minutes on a machine that is busy."""
        wait_until(self.is_up, f"the host {self.name}", lambda: docker("logs", self.container_id), timeout_s=300)

    def inventory(self) -> dict[str, object]:
        """Return the host's variables for an Ansible inventory."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts} -o StrictHostKeyChecking=yes",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_timeout": 60,  # a busy machine's sshd may need more than Ansible's own 10 s
        }


def write_inventory(file: Path, hosts: Sequence[Host]) -> Path:
    """Write an Ansible inventory of these hosts, in the group gpu_servers, and return its file."""
    members = {host.name: host.inventory() for host in hosts}
    file.write_text(yaml.safe_dump({"all": {"children": {"gpu_servers": {"hosts": members}}}}))
    return file


def cgroup_options(*, writable: bool) -> tuple[str, ...]:
    """Return how systemd in a container gets its control groups: cgroup v2 needs the outer tree, writable."""
    if docker("info", "--format", "{{.CgroupVersion}}") == "1":
        return ("-v", "/sys/fs/cgroup:/sys/fs/cgroup" + ("" if writable else ":ro"))
    return ("--cgroupns=host", "-v", "/sys/fs/cgroup:/sys/fs/cgroup")


def engine_options(engine: Engine, port: int) -> tuple[str, ...]:
    """Return docker's options for a host of one kind; none is privileged, which unprivileged machines refuse."""
    if engine is Engine.SHARED:
        # What the outer engine publishes on 127.0.0.1 must be this host's 127.0.0.1 too, and what a deployment
        # keeps must be where that engine mounts it from.
        shared = ("-v", "/var/run/docker.sock:/var/run/docker.sock", "-v", "/var/lib/lpxdoctor:/var/lib/lpxdoctor")
        return ("--network=host", *shared, *cgroup_options(writable=False))
    published = ("-p", f"127.0.0.1:{port}:22")
    if engine is Engine.NONE:
        return (*published, *cgroup_options(writable=False))
    granted = ("--cap-add=ALL", "--cap-drop=SYS_RESOURCE")
    unmasked = ("--security-opt=seccomp=unconfined", "--security-opt=systempaths=unconfined")
    return (*published, *granted, *unmasked, "-v", "/var/lib/docker", *cgroup_options(writable=True))


def login_files(engine: Engine, key: Path, port: int) -> bytes:
    """Return a tar of what makes SSH answer: root's authorized key, and the address on a shared network."""
    contents = {"root/.ssh/authorized_keys": key.with_suffix(".pub").read_bytes()}
    if engine is Engine.SHARED:
        contents["etc/ssh/sshd_config.d/lab.conf"] = f"ListenAddress 127.0.0.1:{port}\n".encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def started_host(
    name: str,
    engine: Engine,
    directory: Path,
    mounts: Sequence[Path] = (),
    more: Sequence[str] = (),
    image: str = "",
) -> Generator[Host]:
    """Start a host that can read the mounts at their own paths, yield it when SSH answers, and remove it.

    more are further options of docker create; an image of another kind has that one's software, and this one's rights.
    """
    key, known_hosts, port = directory / "id_ed25519", directory / "known_hosts", free_port()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lpxdoctor-lab", "-f", key)
    options = (
        *("--hostname", name, "--restart", "unless-stopped"),  # systemctl reboot comes back
        *("--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp"),
        *("--cpu-shares", "256"),  # a quarter of an engine's, which may be measured beside it
        *(part for mount in mounts for part in ("-v", f"{mount}:{mount}:ro")),
        *engine_options(engine, port),
        *more,
    )
    with container(
        image or build(LAB / "build", engine.value), *options, files=login_files(engine, key, port)
    ) as identity:
        host = Host(name=name, container_id=identity, port=port, key=key, known_hosts=known_hosts)
        host.wait_until_up()
        yield host
