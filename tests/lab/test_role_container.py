"""The role container on real systems: Debian 12 with its Docker 20.10, and Debian 13, which gets 26.1 from the role.

NVIDIA's toolkit is a stand-in (toolkit.py): what is tested of it is how it comes in and what Docker is told of it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lpxdoctor import bundled
from tests.lab.engine import LAB, build, docker, wait_until
from tests.lab.hosts import Engine, Host, started_host, write_inventory
from tests.lab.playing import Play, player
from tests.lab.toolkit import VERSION, toolkit_repository
from tests.playbook.trial import gone

RESTART = "Restart Docker, which stops its containers unless live-restore is on"
WRITE = "Write Docker's settings"
# As people write it: keys of theirs, a comment would end Docker, indentation of every kind.
ODD = """{ "log-driver" : "json-file",
      "log-opts":{"max-size":"10m",   "max-file": "3"},

  "labels": [ "rack=7" ] }
"""
IMAGE = "tar -C / -ch usr/bin/sleep lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6 | docker import - tiny"


@pytest.fixture(scope="module")
def play(collections: Path) -> Play:
    return player(collections)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toolkit_repository(tmp_path_factory.mktemp("mirror"))


@pytest.fixture(scope="module")
def debian12(docker_engine: None, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with started_host("lab-role-12", Engine.OWN, tmp_path_factory.mktemp("12"), (mirror,)) as host:
        host.ssh(f"{IMAGE} && docker run -d --name keep tiny /usr/bin/sleep 100000")
        yield host


@pytest.fixture(scope="module")
def debian13(docker_engine: None, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if "\nID=debian\n" not in Path("/etc/os-release").read_text():
        pytest.skip("the mirror of this machine's own distribution has no Debian 13")
    image = build(LAB / "build", "host", "trixie")
    with started_host("lab-role-13", Engine.OWN, tmp_path_factory.mktemp("13"), (mirror,), image=image) as host:
        yield host


def write(host: Host, path: str, text: str) -> None:
    docker("exec", "--interactive", host.container_id, "sh", "-c", f"cat > {path}", stdin=text.encode())


def settings(host: Host) -> str:
    return docker("exec", host.container_id, "cat", "/etc/docker/daemon.json")


def backups(host: Host) -> set[str]:
    return set(host.ssh("ls /etc/docker").split()) - {"daemon.json", "key.json"}


def lock(host: Host) -> str:
    return docker("exec", host.container_id, "sh", "-c", "cat /run/lpxdoctor/run.json 2>/dev/null || true")


def runs(host: Host) -> bool:
    return host.ssh("docker ps --format '{{.Names}}'") == "keep"


# --- Debian 12 --------------------------------------------------------------------------------------------------------


def test_the_toolkit_comes_from_a_mirror_and_its_runtime_into_settings_that_keep_the_rest(
    debian12: Host, mirror: Path, play: Play
) -> None:
    write(debian12, "/etc/docker/daemon.json", ODD)
    # With another key apt would refuse everything: Conflicting values set for option Signed-By.
    other = f"Types: deb\nURIs: file://{mirror}/stable/deb/amd64\nSuites: /\nSigned-By: /usr/share/keyrings/other.gpg\n"
    write(debian12, "/etc/apt/sources.list.d/by-hand.sources", other)
    done = play("container", debian12, mirror_apt_toolkit=f"file://{mirror}", container_toolkit_version=VERSION)
    assert done.failure == ""
    assert f"Install by apt: nvidia-container-toolkit={VERSION}" in [name.partition(", ")[0] for name in done.changed]
    assert {WRITE, RESTART} <= set(done.changed)
    end = ODD.rstrip().removesuffix(" }")
    assert settings(debian12).startswith(end + ',\n\n  "runtimes": {\n    "nvidia": {')
    assert "nvidia" in debian12.ssh("docker info --format '{{json .Runtimes}}'")
    assert [name.split("-")[0] for name in backups(debian12)] == ["daemon.json.before"]
    assert runs(debian12)  # it was started again, though it has no restart policy
    assert debian12.ssh("ls /etc/apt/sources.list.d | grep by-hand") == "by-hand.sources.disabled"

    again = play("container", debian12, mirror_apt_toolkit=f"file://{mirror}", container_toolkit_version=VERSION)
    assert (again.failure, again.changed) == ("", ())


def test_a_restart_that_fails_is_rolled_back(debian12: Host, play: Play) -> None:
    before = settings(debian12)
    done = play("container", debian12, container_toolkit=False, container_settings={"bip": "10.9.0.1/99"})
    assert "Docker did not come back" in done.failure
    assert "invalid CIDR address: 10.9.0.1/99" in done.failure  # dockerd's own words
    assert "The daemon.json of before was put back, and Docker runs again." in done.failure
    assert settings(debian12) == before
    (refused,) = [name for name in backups(debian12) if name.startswith("daemon.json.refused-")]
    assert "10.9.0.1/99" in debian12.ssh(f"cat /etc/docker/{refused}")
    assert runs(debian12)


def test_gpu_work_is_not_interrupted_unasked(debian12: Host, play: Play) -> None:
    # A plain file, which no GPU is behind: what is looked for is who has it open.
    debian12.ssh("touch /dev/nvidia0; nohup sleep 4321 < /dev/nvidia0 > /dev/null 2>&1 & echo $! > /run/work")
    write(debian12, "/etc/docker/daemon.json", '{"hosts": ["unix:///var/run/docker.sock"]}')
    done = play("container", debian12, "container.option-set-twice")
    assert done.changed == ()
    assert f"process {debian12.ssh('cat /run/work')} (sleep of root" in done.failure
    assert "has /dev/nvidia0 open" in done.failure
    assert "gpu_work=force" in done.failure
    assert "hosts" in settings(debian12)
    assert play("container", debian12, "container.option-set-twice", gpu_work="force").changed == (WRITE, RESTART)
    assert settings(debian12) == "{}"
    assert runs(debian12)
    debian12.ssh("kill $(cat /run/work); rm /dev/nvidia0")


def test_a_second_run_is_refused_and_finishes_what_a_dead_one_began(debian12: Host, play: Play, tmp_path: Path) -> None:
    write(debian12, "/etc/docker/daemon.json", '{ "debug": tru')
    hosts = write_inventory(tmp_path / "hosts.yml", [debian12])
    command = (sys.executable, "-m", "ansible", "playbook", "-i", hosts, bundled.PLAYBOOKS / "container.yml")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_CONFIG": str(bundled.PLAYBOOKS / "ansible.cfg")}
    first = subprocess.Popen(
        (*command, "--tags", "container.daemon-json-invalid"), env=environment, stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: f'"pid": {first.pid}' in lock(debian12), "its lock", lambda: lock(debian12), 300)
        first.send_signal(signal.SIGSTOP)
        done = play("container", debian12, "container.daemon-json-invalid")
        assert f"Another run is at work on this host: process {first.pid} of " in done.failure
        assert "Nothing was changed." in done.failure
    finally:
        first.kill()
        first.wait()
    assert gone(str(hosts))  # its workers, which end what they are at
    assert play("container", debian12, "container.daemon-json-invalid").failure == ""
    # What can mean anything is set aside, by name.
    (broken,) = [name for name in backups(debian12) if name.startswith("daemon.json.broken-")]
    assert debian12.ssh(f"cat /etc/docker/{broken}") == '{ "debug": tru'
    assert json.loads(settings(debian12)) == {}
    assert runs(debian12)


# --- Debian 13 --------------------------------------------------------------------------------------------------------


def test_docker_is_installed_through_a_mirror_where_the_archive_is_out_of_reach(debian13: Host, play: Play) -> None:
    file = "/etc/apt/sources.list"
    archive = debian13.ssh(f"grep -o 'http[^ ]*' {file} | head -n 1")
    debian13.ssh(f"cp {file} /root/kept; sed -i 's|{archive}|http://127.0.0.1:9/gone|' {file}")
    gone = debian13.ssh(f"cat {file}")
    wish = {"mirror_apt_distribution": archive}
    planned = play("container", debian13, "container.docker-not-installed", check=True, **wish)
    assert planned.failure == ""
    assert debian13.ssh(f"command -v dockerd || cat {file}") == gone
    assert play("container", debian13, "container.docker-not-installed", **wish).failure == ""
    assert debian13.ssh("docker version --format '{{.Server.Version}}'").startswith("26.")
    assert f"deb {archive} trixie" in debian13.ssh(f"cat {file}")
    assert play("sources", debian13, **wish).changed == ()
    assert play("sources", debian13, mirror_apt_distribution="").failure == ""
    assert debian13.ssh(f"cat {file}") == gone
    debian13.ssh(f"mv /root/kept {file}")


def test_what_dockerd_would_refuse_is_not_written(debian13: Host, play: Play) -> None:
    write(debian13, "/etc/docker/daemon.json", '{"debug": true}')
    done = play("container", debian13, container_toolkit=False, container_settings={"log-level": "loud"})
    assert "dockerd would refuse /etc/docker/daemon.json" in done.failure
    assert "invalid logging level: loud" in done.failure
    assert settings(debian13) == '{"debug": true}'


def test_what_can_mean_one_thing_is_mended_by_the_tag_of_its_check(debian13: Host, play: Play) -> None:
    faults = '{\n  "debug": true, // for now\n  "defualt-runtime": "nvidia",\n  "hosts": ["fd://"],\n}\n'
    write(debian13, "/etc/docker/daemon.json", faults)
    done = play("container", debian13, "container.daemon-json-invalid")
    assert done.failure == ""
    assert done.changed == (WRITE, RESTART)
    assert 'defualt-runtime taken out (no option of this dockerd); it was "nvidia"' in done.said
    assert settings(debian13) == '{\n  "debug": true\n}'


def test_a_mirror_that_does_not_answer_installs_nothing(debian13: Host, play: Play) -> None:
    done = play("container", debian13, "container.toolkit-missing", mirror_apt_toolkit="http://127.0.0.1:9")
    assert "http://127.0.0.1:9/gpgkey cannot be fetched from this host" in done.failure
    assert "mirror_apt_toolkit" in done.failure
    assert debian13.ssh("ls /etc/apt/sources.list.d; ls /usr/bin/nvidia* 2>/dev/null || true") == ""


def test_the_toolkit_and_one_fresh_specification(debian13: Host, mirror: Path, play: Play) -> None:
    wish = {"mirror_apt_toolkit": f"file://{mirror}", "container_toolkit_version": VERSION}
    config = "/etc/nvidia-container-runtime/config.toml"
    # Plain files, which no GPU is behind: the stand-in writes down what it finds.
    debian13.ssh(f"touch /dev/nvidiactl /dev/nvidia0; mkdir -p /etc/cdi {Path(config).parent}")
    write(debian13, "/etc/cdi/broken.yaml", "- {")
    write(debian13, "/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: all}]\n")
    write(debian13, config, '[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig.real"\n')
    done = play("container", debian13, **wish)
    assert done.failure == ""
    spec = debian13.ssh("cat /var/run/cdi/nvidia.yaml")
    assert "libcuda.so.580.159.04" in spec
    assert "/dev/nvidia0" in spec
    left = debian13.ssh("ls /etc/cdi").split()
    assert [name.partition("-")[0] for name in left] == ["broken.yaml.aside", "nvidia.yaml.aside"]
    assert debian13.ssh("systemctl is-active nvidia-cdi-refresh.path") == "active"
    assert 'ldconfig = "@/sbin/ldconfig"' in debian13.ssh(f"cat {config}")
    assert json.loads(settings(debian13))["features"] == {"cdi": True}
    assert json.loads(debian13.ssh("docker info --format '{{json .CDISpecDirs}}'")) == ["/etc/cdi", "/var/run/cdi"]
    assert "nvidia" in debian13.ssh("docker info --format '{{json .Runtimes}}'")
    again = play("container", debian13, **wish)
    assert (again.failure, again.changed) == ("", ())


def test_a_stale_specification_and_broken_toolkit_settings(debian13: Host, play: Play) -> None:
    config = "/etc/nvidia-container-runtime/config.toml"
    debian13.ssh("echo 590.44.01 > /etc/lab-driver-version")  # a driver upgrade
    write(debian13, config, "[nvidia-container-cli\n")
    done = play("container", debian13, "container.cdi-stale", "container.toolkit-config-invalid")
    assert done.failure == ""
    repaired = ("Repair the toolkit's config.toml", "Keep one CDI specification of the GPUs, as they are now")
    assert done.changed == repaired
    assert "libcuda.so.590.44.01" in debian13.ssh("cat /var/run/cdi/nvidia.yaml")
    assert debian13.ssh(f"cat {config}").startswith("[nvidia-container-cli]")
    assert debian13.ssh(f"grep -l 'cli$' {config}.before-*")
