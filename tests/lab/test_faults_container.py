"""Faults of Docker and the Container Toolkit planted in a server with a real Docker Engine, as in test_faults_boot.

NVIDIA's toolkit is the stand-in of toolkit.py; what is repaired is what is around it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.engine import LAB, build
from tests.lab.faults import Ward, show_gpu
from tests.lab.hosts import Engine, Host, started_host
from tests.lab.toolkit import VERSION, toolkit_repository

OTHER = "1.20.1-1+standin"
SETTINGS = "/etc/docker/daemon.json"
RUNTIME = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
# systemd refuses a fourth start within a minute, which a quick machine comes to.
RESTART = "systemctl reset-failed docker; systemctl restart docker"
SPEC = """cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices: [{name: "0", containerEdits: {deviceNodes: [{path: /dev/%s}]}}]
"""


@pytest.fixture(scope="module")
def mirrors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two repositories, each of a version of the toolkit."""
    directory = tmp_path_factory.mktemp("mirrors")
    for version in (VERSION, OTHER):
        toolkit_repository(directory / version, version)
    return directory


@pytest.fixture(scope="module")
def host(docker_engine: None, mirrors: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a Debian 12 that shows a card, and has Docker and no toolkit."""
    with started_host("lab-faults-docker", Engine.GPU, tmp_path_factory.mktemp("docker"), (mirrors,)) as host:
        show_gpu(host)
        yield host


@pytest.fixture
def toolkit(mirrors: Path) -> dict[str, Any]:
    """Return the variables by which the toolkit comes from the mirror."""
    return {"mirror_apt_toolkit": f"file://{mirrors}/{VERSION}", "container_toolkit_version": VERSION}


def spec(node: str, file: str) -> str:
    return f"mkdir -p {Path(file).parent} && cat > {file} <<'END'\n{SPEC % node}END\n"


def test_a_daemon_json_that_is_no_json(ward: Ward) -> None:
    ward.plant(f"""printf '{{"debug": true,, }}' > {SETTINGS}""")
    ward.put_right("container.daemon-json-invalid", "container")


def test_an_option_in_the_file_and_on_the_command_line(ward: Ward) -> None:
    ward.plant(f"""printf '{{"hosts": ["unix:///var/run/docker.sock"]}}' > {SETTINGS}""")
    ward.put_right("container.option-set-twice", "container")


def test_a_docker_that_does_not_answer(ward: Ward) -> None:
    ward.plant("systemctl disable --now docker.socket docker.service 2>/dev/null")
    ward.put_right("container.docker-not-answering", "container")


def test_no_toolkit(ward: Ward, toolkit: dict[str, Any]) -> None:
    ward.put_right("container.toolkit-missing", "container", **toolkit)


def test_a_toolkit_that_docker_was_never_told_of(ward: Ward) -> None:
    ward.plant(f"rm -f {SETTINGS}; {RESTART}")
    ward.put_right("container.runtime-not-registered", "container")


def test_a_docker_that_was_not_restarted(ward: Ward) -> None:
    ward.plant(f"rm -f {SETTINGS}; {RESTART}; printf '{RUNTIME}' > {SETTINGS}")
    ward.put_right("container.daemon-not-restarted", "container")


def test_a_wrong_package_of_the_toolkit_that_is_held(ward: Ward, mirrors: Path, toolkit: dict[str, Any]) -> None:
    deb = mirrors / OTHER / "stable/deb/amd64/libnvidia-container1.deb"
    ward.plant(f"dpkg --install {deb} && apt-mark hold libnvidia-container1")
    ward.put_right("container.toolkit-mixed", "container", **toolkit)


def test_settings_of_the_toolkit_that_cannot_be_read(ward: Ward) -> None:
    file = "/etc/nvidia-container-runtime/config.toml"
    ward.plant(f"mkdir -p {Path(file).parent} && echo '[nvidia-container-cli' > {file}")
    ward.put_right("container.toolkit-config-invalid", "container")


def test_a_cdi_specification_that_cannot_be_read(ward: Ward) -> None:
    ward.plant("mkdir -p /etc/cdi && echo 'kind: [' > /etc/cdi/old.yaml")
    ward.put_right("container.cdi-invalid", "container")


def test_two_cdi_specifications_of_one_gpu(ward: Ward) -> None:
    ward.plant("rm -f /dev/nvidia0; mknod /dev/nvidia0 c 195 0; touch /dev/nvidiactl")
    ward.plant(spec("nvidia0", "/etc/cdi/nvidia.yaml") + spec("nvidia0", "/var/run/cdi/nvidia.yaml"))
    ward.put_right("container.cdi-named-twice", "container")


def test_a_stale_cdi_specification(ward: Ward) -> None:
    ward.plant("rm -f /dev/nvidia0; mknod /dev/nvidia0 c 195 0; touch /dev/nvidiactl")
    ward.plant(spec("nvidia1", "/var/run/cdi/nvidia.yaml"))
    ward.put_right("container.cdi-stale", "container")


def test_a_default_runtime_whose_program_is_gone(ward: Ward) -> None:
    ward.plant(f"""printf '{{"default-runtime": "nvidia", {RUNTIME[1:]}' > {SETTINGS}; {RESTART}""")
    ward.plant("rm /usr/bin/nvidia-container-runtime")
    ward.put_right("container.runtime-program-missing", "container", container_toolkit=False)


@pytest.fixture(scope="module")
def debian13(docker_engine: None, mirrors: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Yield a Debian 13 that shows a card, and has no Docker."""
    if "ID=debian" not in Path("/etc/os-release").read_text():
        pytest.skip("this machine's mirror has no Debian 13")
    image = build(LAB / "build", "host", "trixie")
    with started_host("lab-faults-13", Engine.OWN, tmp_path_factory.mktemp("13"), (mirrors,), image=image) as host:
        show_gpu(host)
        yield host


def test_no_docker_on_debian_13(debian13: Host, to_ward: Callable[[Host], Ward]) -> None:
    to_ward(debian13).put_right("container.docker-not-installed", "container", container_toolkit=False)


def test_a_docker_that_has_cdi_off(debian13: Host, to_ward: Callable[[Host], Ward], toolkit: dict[str, Any]) -> None:
    # The card is shown here too; what Docker says to a container that asks for it is its own.
    ward = to_ward(debian13)
    asking = replace(ward, options=tuple(word for word in ward.options if word != "--no-container-test"))
    asking.plant("touch /dev/nvidiactl; mknod /dev/nvidia0 c 195 0")
    asking.plant(spec("nvidia0", "/etc/cdi/nvidia.yaml"))
    asking.plant(f"""printf '{{"features": {{"cdi": false}}}}' > {SETTINGS}; {RESTART}""")
    asking.put_right("container.cdi-off", "container", **toolkit)
    assert '"cdi": true' in debian13.ssh(f"cat {SETTINGS}")
