"""Running a playbook: the traps of ansible-runner, each on real runs against this machine."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lpxdoctor import bundled, inventory, playbook
from lpxdoctor.deployments import state_dir
from lpxdoctor.errors import SetupError
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import Canceled, State, TaskEvent

Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return what writes the tasks of the playbook `trial`, which runs on this machine; temporary files go below."""
    playbooks, temporary = tmp_path / "playbooks", tmp_path / "tmp"
    playbooks.mkdir()
    temporary.mkdir()
    settings = (bundled.PLAYBOOKS / "ansible.cfg").read_text()
    (playbooks / "ansible.cfg").write_text(settings)
    monkeypatch.setattr(bundled, "PLAYBOOKS", playbooks)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def tasks(text: str) -> None:
        (playbooks / "trial.yml").write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n{text}")

    return tasks


def ignore(event: TaskEvent) -> None:
    pass


def run(
    on_event: Callable[[TaskEvent], None] = ignore, limit_s: float | None = None, *extra: Source
) -> playbook.Outcome:
    sources = [inventory.local(), *extra]
    return playbook.run("trial", sources, collections=Path("/nonexistent"), on_event=on_event, limit_s=limit_s)


def command(*argv: str) -> str:
    return f"    - ansible.builtin.command: {{argv: {json.dumps(argv)}}}\n"


def left_over(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("lpxdoctor-")]


def processes(marker: str) -> list[str]:
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if marker in " ".join(words):
            found.append(f"{file.parent.name}: {' '.join(words)}")
    return found


def gone(marker: str, within_s: float = 5) -> bool:
    deadline = time.monotonic() + within_s
    while processes(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


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


@pytest.mark.slow
def test_a_handler_that_fails_ends_in_its_own_error(write: Write) -> None:
    write(command("true"))

    def broken(event: TaskEvent) -> None:
        raise ValueError(event.task)

    with pytest.raises(ValueError, match="command"):
        run(broken)


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


@pytest.mark.slow
def test_secrets_are_in_no_argument_environment_event_or_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_caller")
    write(
        "    - ansible.builtin.command: {argv: [sh, -c, 'env; sleep 1.5']}\n"
        "    - ansible.builtin.copy: {content: '{{ password }}', dest: '{{ dest }}', mode: '0600'}\n"
        "      no_log: true\n      diff: false\n"
        "    - ansible.builtin.fail: {msg: look at the log}\n"
    )
    target = tmp_path / "secret"
    variables = inventory.for_hosts({"localhost": {"password": "s3cret", "dest": str(target)}})
    seen: list[TaskEvent] = []
    arguments: list[str] = []
    files: dict[str, str] = {}

    def watch(event: TaskEvent) -> None:
        seen.append(event)
        arguments.extend(processes("s3cret"))
        for directory, _, names in os.walk(tmp_path / "tmp"):
            for name in names:
                if not name.startswith("inventory-"):
                    with contextlib.suppress(FileNotFoundError):  # the run goes on meanwhile
                        path = Path(directory, name)
                        files[str(path)] = path.read_text(errors="replace")

    outcome = run(watch, None, variables)
    assert target.read_text() == "s3cret"
    assert arguments == []
    assert "s3cret" not in repr(seen)
    assert "hf_of_the_caller" not in repr(seen)  # the environment of a task, as `env` printed it
    assert any(path.endswith("/command") for path in files)  # the runner's artifacts were looked at
    assert not [path for path, text in files.items() if "s3cret" in text or "hf_of_the_caller" in text]
    assert outcome.log is not None
    assert "s3cret" not in outcome.log.read_text()


@pytest.mark.slow
def test_variables_are_in_a_private_file_and_no_templates(write: Write, tmp_path: Path) -> None:
    write("    - ansible.builtin.command: {argv: [sleep, '0.5']}\n    - ansible.builtin.debug: {msg: '{{ text }}'}\n")
    template = "{% for m in messages %}{{ m }}{% endfor %}"
    modes: set[int] = set()
    seen: list[TaskEvent] = []

    def watch(event: TaskEvent) -> None:
        seen.append(event)
        modes.update(path.stat().st_mode & 0o777 for path in (tmp_path / "tmp").rglob("inventory-*"))
        modes.update(path.stat().st_mode & 0o777 for path in (tmp_path / "tmp").iterdir())

    run(watch, None, inventory.for_hosts({"localhost": {"text": template}}))
    assert seen[-1].result["msg"] == template
    assert modes == {0o600, 0o700}


@pytest.mark.slow
def test_host_keys_are_checked_and_no_other_settings_apply(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "ansible.cfg").write_text("[defaults]\nhost_key_checking = False\ntimeout = 99\n")
    monkeypatch.chdir(other)
    monkeypatch.setenv("HOME", str(other))
    (other / ".ansible.cfg").write_text("[defaults]\ntimeout = 98\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(other / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    write(
        "    - ansible.builtin.debug: {msg: '{{ item }}'}\n"
        '      loop: \'{{ lookup("config", "HOST_KEY_CHECKING", "DEFAULT_TIMEOUT", wantlist=true) }}\'\n'
    )
    seen: list[TaskEvent] = []
    run(seen.append)
    assert [str(item["item"]) for item in seen[-1].result["results"]] == ["True", "10"]


@pytest.mark.slow
def test_over_its_limit_a_run_ends_with_all_its_processes(write: Write, tmp_path: Path) -> None:
    write(command("sleep", "987.25"))
    began = time.monotonic()
    with pytest.raises(SetupError, match="time limit"):
        run(limit_s=3)
    assert time.monotonic() - began < 15
    assert gone("sleep 987.25")
    assert gone(str(tmp_path / "playbooks"))
    assert left_over(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_the_former_handlers_come_back(write: Write, number: signal.Signals) -> None:
    write(command("sleep", "987.5"))
    former = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def strike() -> None:
        deadline = time.monotonic() + 20
        while not processes("sleep 987.5") and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(Canceled):
        run()
    striker.join()
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
