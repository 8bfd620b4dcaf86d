"""Every task that installs or fetches: where a host has an offline repository, none asks for anything elsewhere."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.roles.loading import ROLES, read

INSTALLERS = (
    "apt",
    "dnf",
    "dnf5",
    "yum",
    "package",
    "pip",
    "deb822_repository",
    "apt_repository",
    "apt_key",
    "rpm_key",
)

FETCHERS = ("get_url", "uri", "yum_repository", "unarchive", "git")

# The first word of a command, as a list or as an expression of one.
TOOLS = re.compile(r"\W*(apt-get|apt|apt-cache|aptitude|dnf|yum|rpm|pip3?|curl|wget)\b")


def flattened(role: str, file: Path, outer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a file's tasks, blocks and imported files included, each with the conditions and environments around it."""
    for item in read(file) or ():
        yield from _task(role, file, item, outer)


def _task(role: str, file: Path, item: Mapping[str, Any], outer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    conditions = item.get("when", [])
    own = {
        **item,
        "when": [*outer.get("when", []), *(conditions if isinstance(conditions, list) else [conditions])],
        "environment": item.get("environment", outer.get("environment", "")),
    }
    nested = [one for part in ("block", "rescue", "always") for one in item.get(part, [])]
    for one in nested:
        yield from _task(role, file, one, own)
    target = next((item[key] for key in item if key.endswith(("import_tasks", "include_tasks"))), None)
    name = target.get("file") if isinstance(target, dict) else target
    if name and "{{" not in name:
        yield from flattened(role, ROLES / role / "tasks" / name, own)
    elif not nested:
        yield {**own, "file": f"{role}/{file.name}"}


def package_tasks() -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield (module or tool, task, its arguments) of every task that installs, asks or fetches from somewhere."""
    starts = {
        "engine": ("present", "absent", "settled"),
        "bundle": ("main", "images"),
        "drain": ("main", "resume", "engine"),
    }
    for role in sorted(path.name for path in ROLES.iterdir()):
        entries = ("main", *starts.get(role, ()), *(["install"] if role == "sources" else []))
        for entry in entries:
            for task in flattened(role, ROLES / role / "tasks" / f"{entry}.yml", {}):
                for key, arguments in task.items():
                    short = key.rpartition(".")[2]
                    words = str(arguments.get("argv", "")) if short == "command" else ""
                    tool = TOOLS.match(words)
                    if short in (*INSTALLERS, *FETCHERS):
                        yield short, task, arguments
                    elif tool:
                        yield tool[1], task, arguments


PACKAGE_TASKS = list(package_tasks())


def test_the_tasks_that_install_are_seen() -> None:
    seen = {task["file"] for _, task, _ in PACKAGE_TASKS}
    assert {"sources/install.yml", "driver/install_apt.yml", "driver/install_dnf.yml", "driver/nvidia_key.yml"} <= seen
    assert {"container/source.yml", "driver/sources.yml", "driver/kernels.yml"} <= seen


@pytest.mark.parametrize(
    ("how", "task", "arguments"), PACKAGE_TASKS, ids=lambda part: part.get("name") if isinstance(part, dict) else None
)
def test_no_task_goes_around_the_only_source(how: str, task: dict[str, Any], arguments: Any) -> None:
    """An apt is told of the directory, a dnf knows no other repository, and whatever fetches is for other hosts."""
    where = f"{task['file']}: {task.get('name')}"
    if isinstance(arguments, dict) and arguments.get("state") == "absent":
        return  # it takes away
    if how in FETCHERS:
        offline = any(re.search(r"(_offline == '')|(not \w+_offline)", str(one)) for one in task["when"])
        local = "unix_socket" in arguments or str(arguments.get("baseurl", "")).startswith("file://")
        assert offline or local, where
    elif how in ("apt", "apt-cache", "apt-get"):
        environment = str(task["environment"])
        assert re.search(r"_environment|bundle_apt_told", environment), where
    elif how == "dnf":
        told = str(arguments)
        told_alone = re.search(r"disablerepo.*(sources_offline|driver_dnf_disable)", told) and "enablerepo" in told
        assert told_alone or "driver_dnf_options" in told, where
    else:
        pytest.fail(f"{where}: {how} knows nothing of offline_repository: include sources/install")
