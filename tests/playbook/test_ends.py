"""How a run of a playbook ends that does not go its way: a limit, a signal, a death, no result, no host."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lpxdoctor import playbook
from lpxdoctor.errors import SetupError
from lpxdoctor.playbook import Canceled, State, TaskEvent
from tests.beside import beside
from tests.playbook.trial import Write, command, gone, ignore, left_over, processes, run


@pytest.mark.slow
def test_over_its_limit_a_run_ends_with_all_its_processes(write: Write, tmp_path: Path) -> None:
    write(command("sleep", "987.25"))
    began = time.monotonic()
    with pytest.raises(SetupError, match="time limit"):
        run(limit_s=3)
    assert time.monotonic() - began < 60
    assert gone("sleep 987.25")
    assert gone(str(tmp_path / "playbooks"))
    assert left_over(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_the_former_handlers_come_back(write: Write, number: signal.Signals) -> None:
    write(command("sleep", "987.5"))
    former = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def strike() -> None:
        deadline = time.monotonic() + 60
        while not processes("sleep 987.5") and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    with beside(strike), pytest.raises(Canceled):
        run()
    assert gone("sleep 987.5")
    assert {one: signal.getsignal(one) for one in former} == former


@pytest.mark.slow
def test_a_process_that_ignores_the_request_is_killed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.termination.GRACE_S", 2.0)
    sleep = f"time.sleep({time.monotonic():.3f})"
    stubborn = f"import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; {sleep}"
    write(command(sys.executable, "-c", stubborn))
    with pytest.raises(SetupError, match="time limit"):
        run(limit_s=4)
    assert gone(sleep)


def test_a_run_without_a_summary_is_an_error(write: Write) -> None:
    write("    - this_is_no_module: {}\n")
    with pytest.raises(SetupError, match="this_is_no_module") as caught:
        run()
    assert "has no result" in str(caught.value)
    assert "All that it said: " in str(caught.value)


@pytest.mark.slow
def test_ansible_killed_in_the_middle_is_an_error(write: Write) -> None:
    write(command("true") + command("sleep", "986.5"))

    def kill(event: TaskEvent) -> None:
        if event.state is State.CHANGED:
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            for child in {int(pid) for file in children for pid in file.read_text().split()}:
                if "ansible" in Path(f"/proc/{child}/cmdline").read_text():
                    os.kill(child, signal.SIGKILL)

    with pytest.raises(SetupError, match="has no result"):
        run(kill)
    for line in processes("sleep 986.5"):  # what SIGKILL leaves: the reason why runs are ended by SIGTERM
        os.kill(int(line.partition(":")[0]), signal.SIGKILL)


def test_no_host_is_an_error_and_not_a_success(write: Write, tmp_path: Path) -> None:
    write(command("true"))
    empty = tmp_path / "hosts.yml"
    empty.write_text("all: {hosts: {}}\n")
    with pytest.raises(SetupError, match="names no host"):
        playbook.run("trial", [empty], collections=tmp_path, on_event=ignore)


@pytest.mark.slow
def test_a_broken_inventory_is_told(write: Write, tmp_path: Path) -> None:
    write(command("true"))
    broken = tmp_path / "hosts.yml"
    broken.write_text("all: [\n")
    with pytest.raises(SetupError, match=r"hosts\.yml"):
        playbook.run("trial", [broken], collections=tmp_path, on_event=ignore)


@pytest.mark.slow
def test_a_handler_that_fails_ends_in_its_own_error(write: Write) -> None:
    write(command("true"))

    def broken(event: TaskEvent) -> None:
        raise ValueError(event.task)

    with pytest.raises(ValueError, match="command"):
        run(broken)
