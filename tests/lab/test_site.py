"""Two bare servers come to serve: all of site.yml in order, a real reboot, an engine, its check and its baseline."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.lab import llama, site_host
from tests.lab.engine import docker
from tests.lab.faults import show_gpu
from tests.lab.hosts import Engine, Host, started_host
from tests.lab.said import Doctor, with_variables
from tests.lab.test_provision import blocked, options_of, states

SERVERS = ("lab-s1", "lab-s2")
STARTED = "cut -d ' ' -f 22 /proc/1/stat"  # boot_id is the outer machine's
ENGINE = f"lab-llama-{os.getpid()}"


@pytest.fixture(scope="module")
def servers(
    docker_engine: None, llama_image: str, llama_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Host]]:
    """Yield two servers that show a card and lack all that site.yml brings; they have the engine's image and model."""
    archive = tmp_path_factory.mktemp("image") / "llama.tar"
    docker("save", "--output", archive, llama_image)
    image = site_host.image()
    with ExitStack() as stack:
        found: list[Host] = []
        for name in SERVERS:
            mounts = (llama_model, archive.parent)
            made = started_host(name, Engine.GPU, tmp_path_factory.mktemp(name), mounts, image=image)
            found.append(stack.enter_context(made))
            show_gpu(found[-1])
            found[-1].ssh(f"docker load --quiet --input {archive}", 900)
        yield found


@pytest.fixture
def variables(llama_image: str, llama_model: Path, tmp_path: Path) -> Path:
    """Return the file of what the roles are told: what can be had here, and the engine."""
    return with_variables(
        tmp_path / "site.yml",
        driver_branch="535",  # Debian's own
        reboot_boot_time_command=STARTED,
        container_toolkit=False,  # its repository cannot be reached from here
        engine_image=llama_image,
        engine_command=list(llama.COMMAND),
        engine_model=str(llama_model),
        engine_shm_size="64m",
    )


def test_bare_servers_come_to_serve_and_a_fault_that_a_playbook_meets_stops_the_second(
    servers: list[Host], variables: Path, doctor: Doctor, tmp_path: Path
) -> None:
    one, two = servers
    options = options_of(tmp_path, servers)
    # On the second one Docker is told an address that it refuses, by a variable of that host.
    inventory = Path(options[1])
    right = inventory.read_text()
    wrong = yaml.safe_load(right)
    members = wrong["all"]["children"]["gpu_servers"]["hosts"]
    members[two.name]["container_settings"] = {"bip": "10.9.0.1/99"}
    inventory.write_text(yaml.safe_dump(wrong))
    started = [host.ssh(STARTED) for host in servers]

    run = ("provision", *options, "--reboot", "--name", ENGINE, "--variant", "cpu", "--vars", variables)
    first = doctor(*run, timeout_s=3600)
    assert first.status == 2, first
    done, failed = (states(first)[host.name] for host in servers)
    assert (done["state"], done["canary"]) == ("done", True), first
    assert set(done["tokens_per_s"]) == {"1", "4"}
    assert all(rate > 0 for rate in done["tokens_per_s"].values())
    assert (failed["state"], failed["phase"]) == ("failed", "playbooks")
    assert failed["because"].startswith("site.yml: ")
    assert failed["changed"] > 0  # what came before it
    assert "invalid CIDR address: 10.9.0.1/99" in failed["because"]
    assert "The daemon.json of before was put back, and Docker runs again." in failed["because"]
    for host, former in zip(servers, started, strict=True):
        assert blocked(host)  # boot,
        assert host.ssh("modinfo -k $(ls /lib/modules) -F version nvidia-current").startswith("535.")  # driver,
        assert host.ssh(STARTED) != former  # and reboot came before container
    assert one.ssh("docker ps --format '{{.Names}}'") == ENGINE
    assert two.ssh("docker ps --all --quiet") == ""
    serves = one.ssh(f"docker inspect --format '{{{{.State.StartedAt}}}}' {ENGINE}")

    inventory.write_text(right)
    last = doctor("provision", *options, "--resume", timeout_s=3600)
    assert last.status == 0, last
    assert [states(last)[host.name]["state"] for host in servers] == ["done", "done"]
    assert set(states(last)[two.name]["tokens_per_s"]) == {"1", "4"}
    assert two.ssh("docker ps --format '{{.Names}}'") == ENGINE
    assert one.ssh(f"docker inspect --format '{{{{.State.StartedAt}}}}' {ENGINE}") == serves  # left alone
