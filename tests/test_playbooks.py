"""The playbooks' house rules, beyond what ansible-lint knows: typed variables, one topic a file, nothing forced."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ansible
import pytest
import yaml

from lpxdoctor import bundled, galaxy, inventory, playbook
from lpxdoctor.deploy import rollout
from lpxdoctor.playbook import TaskEvent
from tests.roles.loading import read

ROLES = sorted(path for path in (bundled.PLAYBOOKS / "roles").iterdir() if path.is_dir())
TASKS = sorted(bundled.PLAYBOOKS.glob("roles/*/tasks/*.yml"))
MODULES = sorted(bundled.PLAYBOOKS.glob("roles/*/library/*.py"))
SHARED = sorted((*bundled.PLAYBOOKS.glob("module_utils/*.py"), *bundled.PLAYBOOKS.glob("roles/*/module_utils/*.py")))
ENGINE = bundled.PLAYBOOKS / "roles" / "engine"


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_every_variable_has_a_type_and_a_description(role: Path) -> None:
    specification = read(role / "meta/argument_specs.yml")["argument_specs"]
    for entry in specification.values():
        for name, option in entry["options"].items():
            assert option["type"], name
            assert option["description"], name
    documented = specification["main"]["options"]
    defaults = read(role / "defaults/main.yml")
    assert set(defaults) <= set(documented)
    for name, option in documented.items():
        if "default" in option:
            assert defaults[name] == option["default"], name


@pytest.mark.parametrize("file", TASKS, ids=lambda path: path.name)
def test_a_task_file_is_about_one_thing(file: Path) -> None:
    text = file.read_text()
    # One specification is one thing, and so is the table of what puts which check's illness right.
    limit = {"container": 60, "main": 160}.get(file.stem, 45)
    assert len(text.splitlines()) <= limit
    assert not re.search(r"ignore_errors|state: latest|\bshell:", text)


def test_every_task_file_is_used() -> None:
    text = "".join(file.read_text() for file in (*TASKS, *bundled.PLAYBOOKS.glob("*.yml")))
    states = read(ENGINE / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]["engine_state"]["choices"]
    for file in TASKS:
        entry = file.stem in {"main", *states} or f"tasks_from: {file.stem}\n" in text
        assert entry or re.search(rf"(_tasks|    file): {re.escape(file.name)}\n", text), file.name


def test_tasks_whose_results_are_read_exist() -> None:
    text = "".join(file.read_text() for file in (*TASKS, *bundled.PLAYBOOKS.glob("*.yml")))
    for name in (rollout.LOOK_TASK, rollout.REACH_TASK, rollout.WAIT_TASK, rollout.REPORT_TASK):
        assert f"- name: {name}\n" in text


def test_the_collections_are_pinned_exactly() -> None:
    for row in read(galaxy.REQUIREMENTS)["collections"]:
        assert re.fullmatch(r"\d+\.\d+\.\d+", str(row["version"]))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_documents_its_arguments(module: Path) -> None:
    text = module.read_text()
    documented = re.search(r'DOCUMENTATION = r"""\n(.*?)"""', text, re.DOTALL)
    specification = re.search(r"argument_spec=\{(.*?)\},\s*supports_check_mode=True", text, re.DOTALL)
    assert documented
    assert specification
    options = yaml.safe_load(documented[1])["options"]
    assert set(options) == set(re.findall(r'"(\w+)": \{"type"', specification[1]))


@pytest.mark.slow
def test_a_wrong_variable_ends_the_run_before_its_first_task(tmp_path: Path) -> None:
    seen: list[TaskEvent] = []
    wrong = inventory.for_hosts({"localhost": {"engine_port": "eight", "engine_network": "ring"}})
    outcome = playbook.run("engine", [inventory.local(), wrong], collections=tmp_path, on_event=seen.append)
    (event,) = outcome.failed["localhost"]
    assert "engine_network" in event.message
    assert "engine_port" in event.message
    assert len({one.task for one in seen}) == 1


@pytest.mark.parametrize("module", [*MODULES, *SHARED], ids=lambda path: path.stem)
def test_a_module_is_for_the_oldest_python_of_hosts(module: Path) -> None:
    ast.parse(module.read_text(), feature_version=(3, 9))
    imported = set(re.findall(r"^(?:from|import) ([\w.]+)", module.read_text(), re.MULTILINE))
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = {f"ansible.module_utils.{each.stem}" for each in SHARED}
    assert foreign <= {"ansible.module_utils", "ansible.module_utils.basic", *ours}


def test_the_modules_start_in_the_oldest_python_of_hosts(tmp_path: Path) -> None:
    python = next(Path.home().glob(".pyenv/versions/3.9.*/bin/python"), None)
    if python is None:
        pytest.skip("no Python 3.9 here")
    sent = tmp_path / "ansible" / "module_utils"
    shutil.copytree(Path(ansible.__file__).parent / "module_utils", sent)
    for each in SHARED:
        shutil.copy(each, sent)
    (tmp_path / "ansible" / "__init__.py").touch()
    start = "import runpy, sys; [runpy.run_path(file) for file in sys.argv[1:]]"
    done = subprocess.run((python, "-c", start, *MODULES), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
