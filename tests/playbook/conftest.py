"""The playbook `trial`, written by a test; state and temporary files go below the test's own directory."""

from pathlib import Path

import pytest

from lpxdoctor import bundled
from tests.playbook.trial import Write


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
