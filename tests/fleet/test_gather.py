"""Asking hosts at once: this machine and programs in place of ssh, answers with noise, without end, too long."""

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import bundled, catalog, fleet, inventory
from lpxdoctor.collect import collect
from lpxdoctor.errors import SetupError
from lpxdoctor.evaluate import probes_of
from lpxdoctor.evidence import Command, Evidence, File, Probe, Program
from lpxdoctor.fleet import FleetHost, NoAnswer, gather

READ = tuple(
    probe
    for probe in probes_of(catalog.load(None))
    if not (isinstance(probe, Program) and probe.name in (bundled.CONTAINER_TEST, bundled.RELOAD_TEST))
)
HELLO: tuple[Probe, ...] = (Command(("echo", "hello")), File("/proc/uptime"), File("/none"))


def local(name: str, **more: Any) -> FleetHost:
    return FleetHost(name, {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **more})


def only(*hosts: FleetHost, probes: tuple[Probe, ...] = HELLO, **more: Any) -> Evidence | NoAnswer:
    (row,) = fleet.collect(hosts, probes, container_test=False, **more).values()
    return row


def evidence(row: Evidence | NoAnswer) -> Evidence:
    assert isinstance(row, Evidence), row
    return row


def test_a_host_asked_from_elsewhere_answers_as_it_does_itself() -> None:
    there = evidence(only(*fleet.hosts(inventory.local()), probes=READ))
    here = collect(READ, bundled.programs())
    assert set(there.answers) == set(here.answers)
    failed = {key for key, answer in there.answers.items() if answer.failure == "failed"}
    assert failed == {key for key, answer in here.answers.items() if answer.failure == "failed"}
    assert there.uid == os.getuid()


def test_what_acts_on_a_host_is_not_sent_unless_it_is_wanted() -> None:
    probes = (*HELLO, Program("passthrough"), Program("reload"))
    assert set(evidence(only(local("a"), probes=probes)).answers) == {probe.key for probe in HELLO}


def test_every_host_has_a_row_in_order_and_is_told_of_as_it_answers() -> None:
    seen: list[str] = []
    hosts = [local("b"), FleetHost("c", {"ansible_connection": "winrm"}), local("a")]
    rows = fleet.collect(hosts, HELLO, container_test=False, forks=1, on_host=lambda *row: seen.append(row[0]))
    assert list(rows) == ["b", "c", "a"]
    assert sorted(seen) == ["a", "b", "c"]
    assert isinstance(rows["c"], NoAnswer)
    assert evidence(rows["a"]).host == "a"
    assert evidence(rows["a"]).text(Command(("echo", "hello"))) == "hello\n"


@pytest.mark.parametrize(("version", "old"), [("3.6", True), ("3.8", True), ("3.9", False), ("3.13", False)])
def test_the_pythons_of_hosts(version: str, old: bool) -> None:
    found = next(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), None)
    if found is None:
        pytest.skip(f"no Python {version} here")
    row = only(local("a", ansible_python_interpreter=str(found)), probes=READ)
    if old:
        assert isinstance(row, NoAnswer)
        assert row.reason.startswith("its Python is too old (")
        return
    failed = {key: answer.reason for key, answer in evidence(row).answers.items() if answer.failure == "failed"}
    assert not {key: reason for key, reason in failed.items() if key.startswith("program:")}


def test_no_python_and_a_log_in_that_is_noisy(tmp_path: Path) -> None:
    assert isinstance(only(local("a", ansible_python_interpreter="/none/python")), NoAnswer)
    noisy = tmp_path / "python"
    noisy.write_text(f'#!/bin/sh\nseq 3000\necho "{{"; echo "[" >&2\nexec {sys.executable} "$@"\n')
    noisy.chmod(0o755)
    evidence(only(local("a", ansible_python_interpreter=str(noisy))))


@pytest.mark.parametrize(
    ("script", "limit_s", "reason"),
    [
        ("sleep 60", 0.5, "it did not answer within 0.5 s"),
        ("cat >/dev/null", 6, "it took the connection and did not answer within 6 s"),
        ("exec cat /dev/zero", 30, "its answer is longer than 1 MiB"),
        ('cat >/dev/null & printf "\\n%s 3\\nabc" "$MARK"; sleep 60', 30, "its answer is damaged"),
        ("kill -9 $$", 30, "the connection ended with exit status 137"),
    ],
)
def test_a_host_that_answers_badly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit_s: float, reason: str
) -> None:
    monkeypatch.setattr(gather, "MARGIN_S", 0.0)
    monkeypatch.setattr(gather, "CAP_BYTES", 1 << 20)
    monkeypatch.setattr(secrets, "token_hex", lambda _: "00ff")
    monkeypatch.setenv("MARK", "00ff")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    began = time.monotonic()
    row = only(local("a", ansible_python_interpreter=str(python)), limit_s=limit_s)
    assert time.monotonic() - began < 28
    assert isinstance(row, NoAnswer)
    assert row.reason.startswith(reason)


def test_without_ssh_nothing_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(SetupError, match="There is no ssh on this machine"):
        only(FleetHost("a", {}))


GO = """
import sys
from lpxdoctor import fleet, inventory
from lpxdoctor.evidence import Command
fleet.collect(fleet.hosts(inventory.local()), [Command(("sleep", sys.argv[1]), timeout_s=60)], container_test=False)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_when_it_is_ended(number: int) -> None:
    word = f"60.{os.getpid()}{int(number):02}"
    process = subprocess.Popen((sys.executable, "-c", GO, word), stderr=subprocess.DEVNULL)
    _soon(lambda: _running(word))
    os.kill(process.pid, number)
    process.wait(60)
    _soon(lambda: not _running(word))


def _running(word: str) -> str:
    done = subprocess.run(("pgrep", "-fx", f"sleep {word}"), capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _soon(true: Any, limit_s: float = 120) -> None:
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)
