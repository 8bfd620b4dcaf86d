"""What a run of a playbook keeps to itself: secrets, variables, and the settings of whoever starts it."""

import contextlib
import os
from pathlib import Path

import pytest

from lpxdoctor import inventory
from lpxdoctor.playbook import TaskEvent
from tests.playbook.trial import Write, processes, run


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
    private: list[int] = []

    def watch(event: TaskEvent) -> None:
        seen.append(event)
        arguments.extend(processes("s3cret"))
        for directory, _, names in os.walk(tmp_path / "tmp"):
            for name in names:
                path = Path(directory, name)
                with contextlib.suppress(FileNotFoundError):  # the run goes on meanwhile
                    # Variables, and what copy is to write while it does so, must stand somewhere.
                    if name.startswith("inventory-") or path.parent.name.startswith("ansible-local-"):
                        private.append(path.stat().st_mode & 0o077)
                    else:
                        files[str(path)] = path.read_text(errors="replace")

    outcome = run(watch, None, variables)
    assert target.read_text() == "s3cret"
    assert arguments == []
    assert "s3cret" not in repr(seen)
    assert "hf_of_the_caller" not in repr(seen)  # the environment of a task, as `env` printed it
    assert any(path.endswith("/command") for path in files)  # the runner's artifacts were looked at
    assert not [path for path, text in files.items() if "s3cret" in text or "hf_of_the_caller" in text]
    assert set(private) == {0}
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
        # Only where it stands: what Ansible has of its own below goes while one looks.
        modes.update(path.stat().st_mode & 0o777 for path in (tmp_path / "tmp").glob("*/inventory-*"))
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
def test_ansible_is_imported_from_where_lpxdoctor_is(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where both lie in a directory that PYTHONPATH names, without a virtual environment."""
    (tmp_path / "beside_us.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write("    - ansible.builtin.command: {argv: ['{{ ansible_playbook_python }}', -c, 'import beside_us']}\n")
    assert run().failed == {}
