"""The playbooks' YAML as fix reads it: tags handed on as Ansible does, and what their tags say of checks and plans."""

import re
from pathlib import Path

import pytest
import yaml

from lpxdoctor import catalog
from lpxdoctor.fix import catalogue
from lpxdoctor.fix.catalogue import Catalogue, Task

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


@pytest.fixture(scope="module")
def playbooks() -> Catalogue:
    return catalogue.load()


def test_every_check_that_names_a_playbook_is_a_tag_in_it_and_in_no_other(playbooks: Catalogue) -> None:
    changing = {
        word: frozenset[str]().union(*(task.tags for task in tasks if task.changes))
        for word, tasks in playbooks.items()
    }
    named = {check.id: [check.fix] for check in catalog.load(None) if check.fix}
    assert {id_: [word for word, tags in changing.items() if id_ in tags] for id_ in named} == named


def test_no_tag_is_of_a_check_that_is_gone(playbooks: Catalogue) -> None:
    tags = {tag for tasks in playbooks.values() for task in tasks for tag in task.tags if "." in tag}
    assert tags <= {check.id for check in catalog.load(None)}


def test_what_brings_packages_holds_them_too(playbooks: Catalogue) -> None:
    tasks = playbooks["driver"]
    installs = re.compile(r"Install (the driver|again|by)|Choose the stream|Remove (modules|what)")
    ids = {tag for task in tasks if installs.match(task.name) for tag in task.tags if "." in tag}
    (hold,) = [task for task in tasks if task.name.startswith("Hold the driver's packages")]
    assert {"driver.wrong-module-flavour", "fabric.manager-not-installed", "cuda.no-image-runs"} <= ids
    assert {id_ for id_ in ids if not id_.startswith("fabric.")} <= hold.tags
    assert "fabric.manager-not-installed" in hold.tags
    assert "interrupts" not in hold.tags  # a plan would say of it what is not so


def test_what_moves_a_driver_comes_after_the_look_at_gpu_work(playbooks: Catalogue) -> None:
    """Of what is run for a check's id, the role drain comes before the first task that touches the driver."""
    tasks = [task for task in playbooks["driver"] if "interrupts" in task.tags]
    looks = "Look for work on the GPUs"
    moving = re.compile(r"Install (the driver|again)|Choose the stream|Remove |Let go what|Have Fabric Manager run")
    moved: set[str] = set()
    for id_ in sorted({tag for task in tasks for tag in task.tags if "." in tag}):
        names = [task.name for task in tasks if id_ in task.tags or "always" in task.tags]
        first = next((index for index, name in enumerate(names) if moving.match(name)), None)
        if first is not None:
            moved.add(id_)
            assert looks in names[:first], (id_, names)
    assert {"driver.wrong-module-flavour", "fabric.manager-not-installed"} <= moved


def test_a_restart_of_docker_is_said_to_interrupt(playbooks: Catalogue) -> None:
    restarts = [task for task in playbooks["container"] if task.name.startswith("Restart Docker")]
    assert restarts
    assert all("interrupts" in task.tags for task in restarts)
