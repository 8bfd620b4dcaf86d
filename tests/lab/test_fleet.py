"""A fleet over real SSH: hosts that answer, each kind that does not, and what is left on a host afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lpxdoctor import bundled, catalog, fleet
from lpxdoctor.collect import collect
from lpxdoctor.evaluate import probes_of
from lpxdoctor.evidence import Command, Evidence, Program
from lpxdoctor.fleet import FleetHost, NoAnswer
from tests.beside import beside
from tests.lab.engine import docker, wait_until
from tests.lab.hosts import Engine, Host, started_host
from tests.lab.said import Doctor
from tests.report.schemas import valid

PROBES = tuple(probes_of(catalog.load(None)))
READ = tuple(probe for probe in PROBES if not (isinstance(probe, Program) and probe.name in ("passthrough", "reload")))
LASTS_S = 600.0  # longer than anything is waited for
SLEEP = "sleep 613"
LASTING = Command(tuple(SLEEP.split()), timeout_s=LASTS_S)
# What a collector would leave: its directory, itself, its probe.
LEFT = "ls -d /dev/shm/lpxdoctor-* /var/tmp/lpxdoctor-* 2>/dev/null; pgrep -af 'sys[.]stdin|[s]leep 613' || :"
# Users of the good host; each has the key of root.
USERS = """
set -eu
for user in admin op plain loud locked; do
    useradd --create-home --shell /bin/bash $user
    install -d -m 700 -o $user /home/$user/.ssh
    install -m 600 -o $user /root/.ssh/authorized_keys /home/$user/.ssh/authorized_keys
done
echo 'admin ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/admin
echo 'op ALL=(ALL) ALL' > /etc/sudoers.d/op
echo 'echo "Welcome { to } this host"; echo "[1, 2" >&2; seq 2000' >> /home/loud/.bashrc
sed -i '1i echo "Welcome { to } this host"; seq 2000; echo noise >&2' /home/loud/.bashrc
usermod --shell /usr/sbin/nologin locked
"""
# Room for nothing: the collector goes elsewhere on one host, and finds no place at all on the other.
FULL_TMP = ("--tmpfs", "/tmp:size=64k")
FULL = (*FULL_TMP, "--shm-size", "64k")
LACKS = """
set -eu
useradd --create-home --shell /bin/bash poor
install -d -m 700 -o poor /home/poor/.ssh
install -m 600 -o poor /root/.ssh/authorized_keys /home/poor/.ssh/authorized_keys
chmod 700 /var/tmp
"""


def variables(host: Host, **other: Any) -> dict[str, Any]:
    known = {**host.inventory(), "ansible_timeout": 60, **other}
    return {key: value for key, value in known.items() if value is not None}


@pytest.fixture(scope="module")
def good(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with started_host("fleet-good", Engine.NONE, tmp_path_factory.mktemp("good"), more=FULL_TMP) as host:
        host.ssh(USERS)
        yield host


@pytest.fixture(scope="module")
def lacking(docker_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with started_host("fleet-lacking", Engine.NONE, tmp_path_factory.mktemp("lacking"), more=FULL) as host:
        host.ssh(LACKS)
        yield host


@pytest.fixture(scope="module")
def rows(good: Host, lacking: Host, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Ask all of them at once."""
    place = tmp_path_factory.mktemp("known")
    stranger = lacking.known_hosts.read_text().split(" ", 1)[1]
    (place / "forged").write_text(f"[127.0.0.1]:{good.port} {stranger}")
    own_user = {"ansible_become": False, "ansible_python_interpreter": None}
    cases = {
        "fine": variables(good, ansible_python_interpreter="auto"),
        "by-sudo": variables(good, ansible_user="admin", ansible_become=True),
        "noisy": variables(good, ansible_user="loud", **own_user),
        "full": variables(lacking),  # neither /dev/shm nor /tmp has room
        "wrong-key": variables(good, ansible_ssh_private_key_file=str(lacking.key)),
        "unknown-host-key": variables(good, ansible_ssh_common_args=f"-o UserKnownHostsFile={place}/none"),
        "changed-host-key": variables(good, ansible_ssh_common_args=f"-o UserKnownHostsFile={place}/forged"),
        "sudo-password": variables(good, ansible_user="op", ansible_become=True),
        "no-sudo-rights": variables(good, ansible_user="plain", ansible_become=True),
        "nologin": variables(good, ansible_user="locked"),
        "other-python": variables(good, ansible_python_interpreter="/usr/bin/python3.99"),
        "no-place": variables(lacking, ansible_user="poor"),
        "unknown-name": {"ansible_host": "fleet.invalid"},
    }
    hosts = [FleetHost(name, told) for name, told in cases.items()]
    answers = fleet.collect(hosts, PROBES, container_test=False, forks=8, limit_s=180)
    assert list(answers) == list(cases)
    return answers


@pytest.mark.parametrize(("name", "root"), [("fine", True), ("by-sudo", True), ("noisy", False), ("full", True)])
def test_a_host_answers_what_it_would_answer_at_its_own_terminal(
    rows: Mapping[str, Any], name: str, root: bool
) -> None:
    evidence = rows[name]
    assert isinstance(evidence, Evidence), evidence
    assert evidence.host == name
    assert (evidence.uid == 0) == root
    here = collect(READ, bundled.programs())
    assert set(evidence.answers) == set(here.answers)
    failed = {key for key, answer in evidence.answers.items() if answer.failure == "failed"}
    assert not failed - {key for key, answer in here.answers.items() if answer.failure == "failed"}


@pytest.mark.parametrize(
    ("name", "reason", "do"),
    [
        ("wrong-key", "does not accept the key or the user", "ssh-copy-id"),
        ("unknown-host-key", "host key is not known here", "fingerprint"),
        ("changed-host-key", "is not the one that is known here", "ssh-keygen -R"),
        ("sudo-password", "sudo wants a password", "NOPASSWD"),
        ("no-sudo-rights", "sudo wants a password there, or does not know the user", "NOPASSWD"),
        ("nologin", "may not log in", "ansible_user"),
        ("other-python", "it has no Python (/usr/bin/python3.99)", "apt-get install python3"),
        ("no-place", "no room for the collector (/dev/shm: No space left on device, /tmp: No space", "Free"),
        ("unknown-name", "no address is known for its name fleet.invalid", "ansible_host"),
    ],
)
def test_a_host_that_cannot_answer_says_why_and_what_to_do(
    rows: Mapping[str, Any], name: str, reason: str, do: str
) -> None:
    row = rows[name]
    assert isinstance(row, NoAnswer)
    assert reason in row.reason
    assert do in row.do


def wait_until_gone(host: Host) -> None:
    wait_until(lambda: host.ssh(LEFT) == "", "its end", lambda: host.ssh(LEFT), timeout_s=180)


def test_nothing_is_left_on_a_host(rows: Mapping[str, Any], good: Host, lacking: Host) -> None:
    wait_until_gone(good)
    wait_until_gone(lacking)


def test_a_host_without_python(lacking: Host) -> None:
    docker("exec", lacking.container_id, "sh", "-c", "chmod 0 /usr/bin/python3*")
    hosts = [FleetHost("bare", variables(lacking, ansible_python_interpreter=None))]
    row = fleet.collect(hosts, PROBES, container_test=False)["bare"]
    assert row == NoAnswer(
        "it has no Python (python3)",
        "Install one there (apt-get install python3, dnf install python3.11), or set ansible_python_interpreter.",
    )


def test_a_host_that_hangs_is_given_up(lacking: Host) -> None:
    docker("pause", lacking.container_id)
    try:
        began = time.monotonic()
        hosts = [FleetHost("hung", variables(lacking, ansible_timeout=3))]
        row = fleet.collect(hosts, PROBES, container_test=False, limit_s=LASTS_S)["hung"]
        took_s = time.monotonic() - began
    finally:
        docker("unpause", lacking.container_id)
    assert isinstance(row, NoAnswer)
    assert row.reason == "it does not answer at its address"
    assert took_s < LASTS_S / 2  # rather than what a host may take to answer its probes


def test_a_connection_that_is_lost_in_the_middle(lacking: Host) -> None:
    docker("exec", lacking.container_id, "sh", "-c", "chmod 755 /usr/bin/python3*")
    hosts = [FleetHost("cut", variables(lacking, ansible_python_interpreter=None))]
    with beside(fleet.collect, hosts, [LASTING], container_test=False, limit_s=LASTS_S) as asking:
        wait_until(lambda: SLEEP in lacking.ssh(LEFT), "its probe", lambda: lacking.ssh(LEFT), timeout_s=180)
        docker("restart", "--time", "0", lacking.container_id)
    row = asking.result()["cut"]
    assert isinstance(row, NoAnswer)
    assert row.reason == "the connection to it was lost in the middle"
    lacking.wait_until_up()


SLOW = f"""
import json, sys
from lpxdoctor import fleet
from lpxdoctor.evidence import Command
hosts = [fleet.FleetHost("slow", json.loads(sys.argv[1]))]
fleet.collect(hosts, [{LASTING!r}], container_test=False, limit_s={LASTS_S})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_goes_on_on_a_host_when_we_are_gone(good: Host, number: int) -> None:
    argv = (sys.executable, "-c", SLOW, json.dumps(good.inventory()))
    process = subprocess.Popen(argv, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: SLEEP in good.ssh(LEFT), "its probe", lambda: good.ssh(LEFT), timeout_s=180)
        os.kill(process.pid, number)
        process.wait(180)
        wait_until_gone(good)
    finally:
        process.kill()
        process.communicate()


def test_check_and_collect_have_a_row_for_every_host_also_one_that_is_off(
    doctor: Doctor, good: Host, lacking: Host, tmp_path: Path
) -> None:
    docker("stop", "--time", "0", lacking.container_id)
    file = tmp_path / "hosts.yml"
    members = {"gpu-1": good.inventory(), "gpu-2": lacking.inventory(), "gpu-3": good.inventory()}
    file.write_text(yaml.safe_dump({"all": {"children": {"gpu_servers": {"hosts": members}}}}))
    said = doctor("check", "-i", file, "--no-container-test", "--format", "json", "--forks", "2")
    assert said.status == 2, said
    report = json.loads(said.out)
    assert [(host["name"], host["verdict"]) for host in report["hosts"]] == [
        ("gpu-1", "failed"),
        ("gpu-2", "no answer"),
        ("gpu-3", "failed"),
    ]
    assert report["hosts"][0]["report"]["findings"][0]["id"] == "host.no-gpu"
    (found,) = report["findings"]  # and that two of these names are one machine
    assert (found["id"], found["hosts"]) == ("fleet.machine-twice", ["gpu-1", "gpu-3"])
    valid(report, "fleet-1")
    collected = doctor("collect", "-i", file, "--no-container-test", "-o", tmp_path / "fleet")
    assert collected.status == 2
    assert "gpu-2 did not answer: nothing listens for SSH" in collected.err
    assert "2 of 3 hosts answered" in collected.err
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "fleet").iterdir()} == {0o600}
    again = doctor("check", "--from", tmp_path / "fleet", "--format", "json")
    assert again.status == 2
    assert [host["verdict"] for host in json.loads(again.out)["hosts"]] == ["failed", "no answer", "failed"]


def test_one_host_alone_is_reported_in_full(doctor: Doctor, good: Host, tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"hosts": {"gpu-1": good.inventory()}}}))
    said = doctor("check", "-i", file, "--no-container-test", "host.no-gpu")
    assert said.status == 2
    assert said.out.startswith("gpu-1 ")
    assert "lspci -nn -d 10de:" in said.out
