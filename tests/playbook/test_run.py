"""A run of a playbook on this machine: its events, what they say of each host, and what tags and hosts choose."""

import sys
import time
from pathlib import Path

import pytest

from lpxdoctor import inventory, playbook
from lpxdoctor.playbook import State, TaskEvent
from lpxdoctor.state import state_dir
from tests.playbook.trial import Write, command, ignore, left_over, run


def test_events_are_typed_and_in_order(write: Write, tmp_path: Path) -> None:
    write(command("true") + "    - ansible.builtin.debug: {msg: quiet}\n      when: false\n")
    seen: list[TaskEvent] = []
    outcome = run(seen.append)
    assert [event.state for event in seen] == [State.STARTED, State.CHANGED, State.STARTED, State.SKIPPED]
    assert [event.host for event in seen] == ["", "localhost", "", "localhost"]
    assert outcome.changed == {"localhost": 1}
    assert (outcome.failed, outcome.partly) == ({}, {})
    assert outcome.log is None
    assert left_over(tmp_path) == []


@pytest.mark.slow
def test_a_slow_handler_holds_nothing_up(write: Write) -> None:
    write("    - ansible.builtin.debug: {msg: '{{ item }}'}\n      loop: '{{ range(5) | list }}'\n" * 8)
    seen: list[TaskEvent] = []

    def slow(event: TaskEvent) -> None:
        time.sleep(0.25)
        seen.append(event)

    assert run(slow).changed == {"localhost": 0}
    assert len(seen) == 16


def test_a_failed_task_is_told_and_its_log_is_kept_privately(write: Write, tmp_path: Path) -> None:
    write(command("true") + "    - ansible.builtin.fail: {msg: the disk is full}\n")
    outcome = run()
    (event,) = outcome.failed["localhost"]
    assert event.state is State.FAILED
    assert event.message == "the disk is full"
    assert (outcome.changed, outcome.partly) == ({}, {"localhost": 1})
    assert outcome.log is not None
    assert "the disk is full" in outcome.log.read_text()
    assert outcome.log.is_relative_to(state_dir() / "logs")
    assert outcome.log.stat().st_mode & 0o777 == 0o600
    assert left_over(tmp_path) == []


@pytest.mark.slow
def test_a_rescued_failure_is_no_failure(write: Write) -> None:
    write(
        "    - block:\n        - ansible.builtin.fail: {msg: first}\n"
        "      rescue:\n        - ansible.builtin.debug: {msg: mended}\n"
    )
    assert run().failed == {}


def test_a_refusing_host_is_told(write: Write) -> None:
    write(command("true"))
    refused = inventory.parse("nobody@127.0.0.1:1")
    outcome = playbook.run("trial", [refused], collections=Path("/nonexistent"), on_event=ignore)
    (event,) = outcome.failed["127.0.0.1"]
    assert event.state is State.UNREACHABLE
    assert "Connection refused" in event.message


@pytest.mark.slow
def test_a_check_changes_nothing_and_returns_differences(write: Write, tmp_path: Path) -> None:
    target = tmp_path / "made"
    write(f"    - ansible.builtin.copy: {{content: new, dest: {target}, mode: '0600'}}\n")
    seen: list[TaskEvent] = []
    outcome = playbook.run(
        "trial", [inventory.local()], collections=Path("/nonexistent"), on_event=seen.append, check=True
    )
    assert outcome.changed == {"localhost": 1}
    assert seen[-1].result["diff"]
    assert not target.exists()


def test_tags_and_hosts_choose_what_is_run(write: Write) -> None:
    write(
        "    - ansible.builtin.debug: {msg: one}\n      tags: [boot.one]\n"
        "    - ansible.builtin.debug: {msg: two}\n      tags: [boot.two]\n"
        "    - ansible.builtin.debug: {msg: first}\n      tags: [always]\n"
    )
    seen: list[TaskEvent] = []
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    outcome = playbook.run(
        "trial",
        [{"all": {"hosts": {"here": local, "there": local}}}],
        collections=Path("/nonexistent"),
        on_event=seen.append,
        tags=("boot.two", "boot.three"),
        hosts=("there",),
    )
    assert outcome.changed == {"there": 0}
    assert [event.result["msg"] for event in seen if event.state is State.OK] == ["two", "first"]


@pytest.mark.slow
def test_playbooks_may_lie_where_nothing_can_be_written(write: Write, tmp_path: Path) -> None:
    write(command("true"))
    before = sorted(path.name for path in (tmp_path / "playbooks").rglob("*"))
    (tmp_path / "playbooks").chmod(0o555)
    run()
    assert sorted(path.name for path in (tmp_path / "playbooks").rglob("*")) == before
