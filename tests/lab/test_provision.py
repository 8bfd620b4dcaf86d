"""Servers over SSH, provisioned as a user does: stopped by a fault, interrupted in every way, and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.provision import record as records
from tests.lab.engine import docker, free_port, wait_until
from tests.lab.fixtures import HostStarter
from tests.lab.hosts import Engine, Host, write_inventory
from tests.lab.said import Doctor, Said
from tests.report.schemas import valid

NAMES = ("lab-p1", "lab-p2", "lab-p3")
BLACKLIST = "/etc/modprobe.d/blacklist-nouveau.conf"
LOCK = "/run/lpxdoctor/run.json"
# What no container of this lab has, a GPU and its driver, does not count.
POLICY = """
disabled = [
  "driver.module-not-loaded", "driver.nvml-fails", "driver.libraries-missing", "driver.nvidia-smi-fails",
  "cuda.init-fails", "cuda.no-driver-library", "container.gpu-not-visible", "container.cuda-init-fails",
  "container.toolkit-missing", "container.runtime-not-registered",
]
severity = { "host.no-gpu" = "info", "driver.not-installed" = "info", "container.docker-not-installed" = "info" }
[limits]
min_coverage = 0.05
[provision]
concurrencies = [1, 4]
requests = 4
input_len = 32
output_len = 16
least_share = 0.01 # this machine does other things meanwhile
"""


@pytest.fixture(scope="module")
def hosts(start_host: HostStarter) -> Iterator[dict[str, Host]]:
    """Yield three servers."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(start_host(name, Engine.NONE)) for name in NAMES}


def options_of(directory: Path, hosts: Sequence[Host]) -> tuple[str | Path, ...]:
    (directory / "policy.toml").write_text(POLICY)
    inventory = write_inventory(directory / "inventory.yml", hosts)
    return ("-i", inventory, "--policy", directory / "policy.toml", "--no-container-test", "--format", "json")


@pytest.fixture(scope="module")
def options(hosts: dict[str, Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    return options_of(tmp_path_factory.mktemp("provision"), list(hosts.values()))


def states(said: Said) -> dict[str, dict[str, Any]]:
    document = json.loads(said.out)
    valid(document, "provision-1")
    return {row["name"]: row for row in document["hosts"]}


def blocked(host: Host) -> bool:
    return host.ssh(f"test -e {BLACKLIST} && echo yes || echo no") == "yes"


def test_it_stops_at_the_second_batch_and_goes_on_when_the_fault_is_gone(
    hosts: dict[str, Host], options: tuple[str | Path, ...], doctor: Doctor
) -> None:
    # Settings of Docker that are no JSON: boot.yml leaves them as they are.
    hosts["lab-p2"].ssh("mkdir /etc/docker && echo '{' > /etc/docker/daemon.json")
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


def test_a_host_that_is_gone_is_a_failed_canary(options: tuple[str | Path, ...], doctor: Doctor) -> None:
    gone = ("-i", f"root@127.0.0.1:{free_port()}", *options[2:])
    said = doctor("provision", "boot", *gone)
    assert said.status == 2, said
    (row,) = states(said).values()
    assert (row["state"], row["phase"]) == ("failed", "playbooks")
    assert "cannot be reached by SSH" in row["because"]
    assert json.loads(said.out)["stopped"] == "The canary 127.0.0.1 did not pass."


# --- In the middle of a playbook --------------------------------------------------------------------------------------


def holder(host: Host) -> dict[str, Any]:
    """Return who has the host's lock, nothing where nobody has it."""
    told: dict[str, Any] = json.loads(host.ssh(f"cat {LOCK} 2>/dev/null || :") or "{}")
    return told


@contextmanager
def under_way(
    host: Host, environment: dict[str, str], *argv: str | Path
) -> Generator[tuple["subprocess.Popen[str]", int]]:
    """Start lpxdoctor and yield it when its playbook is at work on a host, with its Ansible, which is stopped there."""
    command = (sys.executable, "-m", "lpxdoctor", *argv)
    former = holder(host)  # a run that was ended keeps the lock
    its_ansible = 0

    def is_stopped() -> bool:
        """Stop its Ansible once that has the lock: it may come to its end before all that is to be tried."""
        nonlocal its_ansible
        now = holder(host)
        if now in ({}, former):
            return False
        its_ansible = now["pid"]
        os.kill(its_ansible, signal.SIGSTOP)
        return True

    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: process.poll() is not None or is_stopped(), "its lock", str, 180)
        if process.poll() is not None:
            pytest.fail("\n".join(process.communicate()))
        yield process, its_ansible
    finally:
        process.kill()
        process.communicate()


def told_to_end(pid: int) -> bool:
    """Tell whether SIGTERM waits for a process that is stopped."""
    waiting = re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(waiting and int(waiting[1], 16) >> signal.SIGTERM - 1 & 1)


def test_a_run_that_is_killed_is_known_and_finished_by_the_next(
    hosts: dict[str, Host],
    doctor: Doctor,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])
    pair = [hosts["lab-p2"], hosts["lab-p3"]]
    run = ("provision", "boot", *options_of(tmp_path, pair))
    with under_way(hosts["lab-p2"], environment, *run) as (process, its_ansible):
        second = doctor(*run)
        assert (second.status, second.out) == (64, "")
        assert f": process {process.pid} of " in second.err
        assert "--resume goes on" in second.err
        assert doctor(*run, "--plan").status == 0  # which changes nothing, and waits for nobody
        process.send_signal(signal.SIGKILL)
        process.wait()
    # Its Ansible is ended by the kernel, and until then it is at work there.
    wait_until(lambda: not Path(f"/proc/{its_ansible}").exists(), "its end", lambda: f"{its_ansible}", 60)
    assert holder(hosts["lab-p2"])["pid"] == its_ansible
    known = records.load(str(run[3]))
    assert (known.at("running"), known.at("waiting")) == (("lab-p2",), ("lab-p3",))
    assert known.hosts["lab-p2"].phase == "playbooks"
    last = doctor(*run[:1], *run[2:], "--resume")
    assert last.status == 0, last
    assert [row["state"] for row in states(last).values()] == ["done", "done"]


def test_ctrl_c_and_a_connection_that_is_lost_leave_a_known_state(
    hosts: dict[str, Host], doctor: Doctor, environment: dict[str, str], tmp_path: Path
) -> None:
    host = hosts["lab-p3"]
    options = options_of(tmp_path, [host])
    with under_way(host, environment, "provision", "boot", *options) as (process, its_ansible):
        process.send_signal(signal.SIGINT)
        wait_until(lambda: told_to_end(its_ansible), "SIGTERM", lambda: f"{its_ansible}", 60)
        os.kill(its_ansible, signal.SIGCONT)
        out, err = process.communicate(timeout=180)
    said = Said(process.returncode, out, err)
    assert said.status == 130, said
    row = states(said)["lab-p3"]
    assert (row["state"], row["phase"]) == ("interrupted", "playbooks")
    modules = "pgrep -af [A]nsiballZ || :"
    wait_until(lambda: host.ssh(modules) == "", "their end", lambda: host.ssh(modules), 60)

    with under_way(host, environment, "provision", *options, "--resume") as (process, its_ansible):
        docker("stop", "--time", "0", host.container_id)
        os.kill(its_ansible, signal.SIGCONT)
        out, err = process.communicate(timeout=300)
    docker("start", host.container_id)
    said = Said(process.returncode, out, err)
    assert said.status == 2, said
    row = states(said)["lab-p3"]
    assert (row["state"], row["phase"]) == ("failed", "playbooks")
    assert "the connection to it was lost" in row["because"]
    host.wait_until_up()
    last = doctor("provision", *options, "--resume")
    assert last.status == 0, last
    assert states(last)["lab-p3"]["state"] == "done"
