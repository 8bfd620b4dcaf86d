"""Plant faults in a directory of the test's own, with the playbook that removes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import bundled, inventory, policy
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import Listing
from lpxdoctor.fix import catalogue
from lpxdoctor.fix.look import Looker
from lpxdoctor.fix.play import Job
from lpxdoctor.fix.state import Wishes
from lpxdoctor.playbook import TaskEvent
from tests.fix.planting import CHECKS, TASKS, Faults, Planting, ignore


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planting:
    """Return what plants faults and returns the job of a run."""
    playbooks = tmp_path / "playbooks"
    (playbooks / "roles/boot/tasks").mkdir(parents=True)
    (playbooks / "ansible.cfg").write_text((bundled.PLAYBOOKS / "ansible.cfg").read_text())
    (playbooks / "boot.yml").write_text("- hosts: all\n  gather_facts: false\n  roles: [boot]\n")
    (playbooks / "roles/boot/tasks/main.yml").write_text(TASKS.replace("{root}", str(tmp_path)))
    (tmp_path / "faults").mkdir()
    monkeypatch.setattr(bundled, "PLAYBOOKS", playbooks)
    monkeypatch.setattr("lpxdoctor.galaxy.ensure", lambda: tmp_path / "collections")  # these playbooks need none
    monkeypatch.setattr(Faults, "where", Listing(f"{tmp_path}/faults/*"), raising=False)
    monkeypatch.setattr(Faults, "probes", (Faults.where,))
    monkeypatch.setattr("lpxdoctor.fix.work.PROBES", ())  # what works on this machine's GPUs is no matter here
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def faults(*ids: str, on_event: Callable[[TaskEvent], None] = ignore, **wishes: Any) -> Job:
        for id_ in ids:
            (tmp_path / "faults" / id_).touch()
        return Job(
            wishes=Wishes(container_test=False, **wishes),
            source=inventory.local(),
            looker=Looker(
                checks=CHECKS, judge=lambda seen: evaluate(CHECKS, seen, policy.load()), container_test=False
            ),
            catalogue=catalogue.load(playbooks),
            variables={},
            on_event=on_event,
        )

    return faults
