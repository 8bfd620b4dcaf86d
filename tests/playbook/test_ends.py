"""How a run of a playbook ends that does not go its way: a limit, a signal, a death, no result, no host."""

import os
import signal
import time
from pathlib import Path

import pytest

from lpxdoctor import playbook
from lpxdoctor.errors import SetupError
from lpxdoctor.playbook import Canceled, State, TaskEvent
from tests.beside import beside
from tests.playbook.trial import Write, command, gone, ignore, left_over, processes, run, there

OWN = f"{os.getpid():07}"  # ends how long something sleeps: other runs of the tests have sleepers, too


@pytest.mark.slow
def test_over_its_limit_a_run_ends_with_all_its_processes(write: Write, tmp_path: Path) -> None:
    write(command("sleep", f"987.25{OWN}"))
    began = time.monotonic()
    with pytest.raises(SetupError, match="time limit"):
        run(limit_s=3)
    assert time.monotonic() - began < 60
    assert gone(f"sleep 987.25{OWN}")
    assert gone(str(tmp_path / "playbooks"))
    assert left_over(tmp_path) == []


def strike(marker: str, number: signal.Signals) -> None:
    """Signal this process once a process that shows the marker is there."""
    there(marker)
    os.kill(os.getpid(), number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_the_former_handlers_come_back(write: Write, number: signal.Signals) -> None:
    write(command("sleep", f"987.50{OWN}"))
    former = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with beside(strike, f"sleep 987.50{OWN}", number), pytest.raises(Canceled):
        run()
    assert gone(f"sleep 987.50{OWN}")
    assert {one: signal.getsignal(one) for one in former} == former


@pytest.mark.slow
def test_a_process_that_ignores_the_request_is_killed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.termination.GRACE_S", 2.0)
    # It shows its name as a sleeper only when it ignores them.
    write(command("sh", "-c", "trap '' HUP INT TERM; exec sleep \"$0\"", f"987.75{OWN}"))
    with beside(strike, f"sleep 987.75{OWN}", signal.SIGTERM), pytest.raises(Canceled):
        run()
    assert gone(f"sleep 987.75{OWN}")


def test_a_run_without_a_summary_is_an_error(write: Write) -> None:
    write("    - this_is_no_module: {}\n")
    with pytest.raises(SetupError, match="this_is_no_module") as caught:
        run()
    assert "has no result" in str(caught.value)
    assert "All that it said: " in str(caught.value)


@pytest.mark.slow
def test_ansible_killed_in_the_middle_is_an_error(write: Write) -> None:
    write(command("true") + command("sleep", f"986.50{OWN}"))

    def kill(event: TaskEvent) -> None:
        if event.state is State.CHANGED and there(f"sleep 986.50{OWN}"):
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            for child in {int(pid) for file in children for pid in file.read_text().split()}:
                if "ansible" in Path(f"/proc/{child}/cmdline").read_text():
                    os.kill(child, signal.SIGKILL)

    with pytest.raises(SetupError, match="has no result"):
        run(kill)
    for line in processes(f"sleep 986.50{OWN}"):  # what SIGKILL leaves: the reason why runs are ended by SIGTERM
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
