"""The playbooks' YAML as fix reads it: tags handed on as Ansible does, every check that names a playbook covered."""

from pathlib import Path

import pytest
import yaml

from lpxdoctor import catalog
from lpxdoctor.fix import catalogue
from lpxdoctor.fix.catalogue import Task

FILES = {
    "boot.yml": [
        {"hosts": "all", "tags": ["play"], "roles": [{"role": "boot", "tags": "entry"}], "tasks": [{"name": "own"}]}
    ],
    "roles/boot/tasks/main.yml": [
        {"name": "imports", "ansible.builtin.import_tasks": "one.yml", "tags": ["boot.a"]},
        {"name": "includes", "ansible.builtin.include_tasks": "two.yml", "tags": ["boot.b"]},
        {
            "name": "applies",
            "ansible.builtin.include_tasks": {"file": "three.yml", "apply": {"tags": ["boot.c"]}},
            "tags": ["boot.c"],
        },
        {"name": "by name", "ansible.builtin.include_tasks": "{{ boot_state }}.yml"},
        {"ansible.builtin.import_role": {"name": "other", "tasks_from": "late"}, "tags": ["always"]},
    ],
    "roles/boot/tasks/one.yml": [
        {
            "name": "block",
            "tags": ["boot.d"],
            "block": [{"name": "Write {{ file }} anew", "copy": {}, "notify": "restart"}],
            "rescue": [{"name": "put back", "copy": {}}],
        }
    ],
    "roles/boot/tasks/two.yml": [{"name": "second", "copy": {}}],
    "roles/boot/tasks/three.yml": [{"name": "third", "ansible.builtin.stat": {}}],
    "roles/boot/handlers/main.yml": [{"name": "Restart it", "listen": "restart", "tags": ["interrupts", "x"]}],
    "roles/other/tasks/late.yml": [{"name": "late", "command": "true", "changed_when": False}],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(content))
    return tmp_path


def test_tags_are_handed_on_as_ansible_does(root: Path) -> None:
    outer = frozenset({"play", "entry"})
    assert catalogue.load(root) == {
        "boot": (
            Task("Write ... anew", outer | {"boot.a", "boot.d", "interrupts"}),
            Task("put back", outer | {"boot.a", "boot.d"}),
            Task("second", outer),  # an include keeps its own tags to itself
            Task("third", outer | {"boot.c"}, changes=False),
            Task("late", outer | {"always"}, changes=False),
            Task("own", frozenset({"play"})),
        )
    }


def test_every_check_that_names_a_playbook_is_a_tag_in_it_and_in_no_other() -> None:
    changing = {
        word: frozenset[str]().union(*(task.tags for task in tasks if task.changes))
        for word, tasks in catalogue.load().items()
    }
    named = {check.id: [check.fix] for check in catalog.load(None) if check.fix}
    assert {id_: [word for word, tags in changing.items() if id_ in tags] for id_ in named} == named
