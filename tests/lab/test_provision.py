"""Three servers over SSH: a fault that the playbook does not mend stops the run; it goes on when that is gone."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import catalog
from tests.lab.engine import free_port
from tests.lab.fixtures import HostStarter
from tests.lab.hosts import Engine, Host, write_inventory
from tests.lab.said import SERVES, Doctor, Said, with_variables

NAMES = ("lab-p1", "lab-p2", "lab-p3")
BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"
# What no container of this lab has, a GPU and its driver, does not count.
POLICY = """
disabled = [
  "driver.module-not-loaded", "driver.nvml-fails", "driver.libraries-missing", "driver.nvidia-smi-fails",
  "cuda.init-fails", "cuda.no-driver-library",
]
severity = { "host.no-gpu" = "info", "driver.not-installed" = "info", "container.docker-not-installed" = "info" }
[limits]
min_coverage = 0.05
"""
PROVISION = """
[limits]
min_coverage = 0.05
[provision]
concurrencies = [1, 4]
requests = 4
input_len = 32
output_len = 16
"""


@pytest.fixture(scope="module")
def hosts(start_host: HostStarter) -> Iterator[dict[str, Host]]:
    """Yield three servers, the second with settings of Docker that are no JSON: boot.yml leaves them as they are."""
    with ExitStack() as stack:
        started = {name: stack.enter_context(start_host(name, Engine.NONE)) for name in NAMES}
        started["lab-p2"].ssh("mkdir /etc/docker && echo '{' > /etc/docker/daemon.json")
        yield started


@pytest.fixture(scope="module")
def options(hosts: dict[str, Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    directory = tmp_path_factory.mktemp("provision")
    (directory / "policy.toml").write_text(POLICY)
    inventory = write_inventory(directory / "inventory.yml", list(hosts.values()))
    return ("-i", inventory, "--policy", directory / "policy.toml", "--no-container-test", "--format", "json")


def states(said: Said) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(said.out)["hosts"]}


def blocked(host: Host) -> bool:
    return host.ssh(f"test -e {BLACKLIST} && echo yes || echo no") == "yes"


def test_it_stops_at_the_second_batch_and_goes_on_when_the_fault_is_gone(
    hosts: dict[str, Host], options: tuple[str | Path, ...], doctor: Doctor
) -> None:
    first = doctor("provision", "boot", "--serial", "1", *options)
    assert first.status == 2, first
    one, two, three = (states(first)[name] for name in NAMES)
    assert (one["state"], one["canary"]) == ("done", True)
    assert one["changed"] > 0
    assert (two["state"], two["phase"]) == ("failed", "check")
    assert "container.daemon-json-invalid" in two["because"]
    assert (three["state"], three["because"]) == ("not tried", "")
    assert [blocked(hosts[name]) for name in NAMES] == [True, True, False]
    assert json.loads(first.out)["stopped"] == "1 failed, and --max-fail is 1."

    hosts["lab-p2"].ssh("rm /etc/docker/daemon.json")
    last = doctor("provision", *options, "--resume")
    assert last.status == 0, last
    assert [states(last)[name]["state"] for name in NAMES] == ["done"] * 3
    assert states(last)["lab-p1"]["changed"] == one["changed"]  # only checked again
    assert blocked(hosts["lab-p3"])


def test_a_host_that_is_gone_is_a_failed_canary(
    hosts: dict[str, Host], options: tuple[str | Path, ...], doctor: Doctor
) -> None:
    gone = ("-i", f"root@127.0.0.1:{hosts['lab-p1'].port + 1}", *options[2:])
    said = doctor("provision", "boot", *gone)
    assert said.status == 2, said
    (row,) = states(said).values()
    assert (row["state"], row["phase"]) == ("failed", "playbooks")
    assert "cannot be reached by SSH" in row["because"]
    assert json.loads(said.out)["stopped"] == "The canary 127.0.0.1 did not pass."


def test_an_engine_is_rolled_out_and_measured(
    shared_engine_host: Host,
    cpu_image: str,
    model_dir: Path,
    doctor: Doctor,
    tmp_path: Path,
) -> None:
    inventory = write_inventory(tmp_path / "hosts.yml", (shared_engine_host,))
    variables = with_variables(
        tmp_path / "engine.yml",
        engine_model=str(model_dir),
        engine_arguments=["--load-format", "dummy"],
        engine_env={"OMP_NUM_THREADS": "1"},
        engine_max_model_len=1024,
        engine_port=free_port(),
    )
    # Its Docker Engine is this machine's, with the containers of every other test in it: none of them counts.
    severities = ", ".join(f'"{check.id}" = "info"' for check in catalog.load(None))
    policy = tmp_path / "policy.toml"
    policy.write_text(f"severity = {{ {severities} }}\n{PROVISION}")
    options = ("-i", inventory, "--policy", policy, "--no-container-test", "--format", "json")
    try:
        said = doctor("provision", "boot", *options, "--name", SERVES, "--vars", variables)
        assert said.status == 0, said
        (row,) = states(said).values()
        assert (row["state"], row["canary"]) == ("done", True)
        assert set(row["tokens_per_s"]) == {"1", "4"}
        assert all(rate > 0 for rate in row["tokens_per_s"].values())
        table = doctor("baseline", "-i", inventory, "--concurrency", "1", "--requests", "2", "--output-len", "8")
        assert f"{SERVES}@{shared_engine_host.name}" in table.out
        assert table.status in (0, 1), table
    finally:
        doctor("undeploy", SERVES, "-i", inventory)
