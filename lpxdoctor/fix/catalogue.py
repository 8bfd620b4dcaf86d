"""What the playbooks can put right: their YAML in, the tasks of each with the ids that they are tagged with out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lpxdoctor import bundled

# The order of site.yml, which holds until a check's chain says otherwise: each needs what those before it set up.
ORDER = ("boot", "driver", "container", "engine")
INTERRUPTS, REBOOT, ALWAYS = "interrupts", "reboot", "always"
_TEMPLATE = re.compile(r"\{\{.*?\}\}")  # known on the host only
_INCLUDES = ("import_tasks", "include_tasks", "import_role", "include_role")
# What looks, says or refuses changes nothing, so a plan does not name it.
_LOOKS = ("debug", "assert", "fail", "set_fact", "stat", "slurp", "meta", "include_vars", "setup", "pause", "wait_for")


@dataclass(frozen=True)
class Task:
    """A task by its name, and all tags that it has, its handlers' included; changes: whether it can change a host."""

    name: str
    tags: frozenset[str]
    changes: bool = True


Catalogue = Mapping[str, Sequence[Task]]  # playbook -> its tasks in the order in which they run


def load(root: Path = bundled.PLAYBOOKS) -> Catalogue:
    """Return the tasks of the playbooks that a check can name."""
    present = [word for word in ORDER if (root / f"{word}.yml").exists()]
    return {word: tuple(_playbook(root, root / f"{word}.yml")) for word in present}


def _read(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8")) or []
    return found


def _tags(item: Mapping[str, Any]) -> frozenset[str]:
    given = item.get("tags") or ()
    words = given.split(",") if isinstance(given, str) else given
    return frozenset(str(word).strip() for word in words)


def _playbook(root: Path, file: Path) -> Iterator[Task]:
    for play in _read(file):
        tags = _tags(play)
        for entry in play.get("roles") or ():
            role = {"role": entry} if isinstance(entry, str) else entry
            yield from _role(root, str(role.get("role", role.get("name"))), "main", tags | _tags(role))
        for part in ("pre_tasks", "tasks", "post_tasks"):
            yield from _tasks(root, root, play.get(part) or (), tags)


def _role(root: Path, name: str, entry: str, tags: frozenset[str]) -> Iterator[Task]:
    place = root / "roles" / name
    meta = place / "meta" / "main.yml"
    described: Any = yaml.safe_load(meta.read_text(encoding="utf-8")) if meta.exists() else {}
    for needed in (described or {}).get("dependencies") or ():
        role = {"role": needed} if isinstance(needed, str) else needed
        yield from _role(root, str(role.get("role", role.get("name"))), "main", tags | _tags(role))
    yield from _tasks(root, place / "tasks", _read(place / "tasks" / f"{entry}.yml"), tags)


def _tasks(root: Path, place: Path, items: Sequence[Mapping[str, Any]], tags: frozenset[str]) -> Iterator[Task]:
    for item in items:
        own = tags | _tags(item)
        if "block" in item:
            for part in ("block", "rescue", "always"):
                yield from _tasks(root, place, item.get(part) or (), own)
            continue
        how, target = next(((how, item[key]) for how in _INCLUDES for key in _keys(how) if key in item), ("", None))
        if how:
            yield from _included(root, place, how, target, tags, own)
        else:
            told = own | _handlers(place.parent, item)
            yield Task(_TEMPLATE.sub("...", str(item.get("name", ""))), told, changes=_changes(item))


def _keys(module: str) -> tuple[str, ...]:
    return f"ansible.builtin.{module}", module


def _included(
    root: Path, place: Path, how: str, target: Any, outer: frozenset[str], own: frozenset[str]
) -> Iterator[Task]:
    """Yield what an import or include brings; an include keeps its own tags to itself, and hands on what it applies."""
    given: Mapping[str, Any] = target if isinstance(target, dict) else {"file": target}
    handed = own if how.startswith("import") else outer | _tags(given.get("apply") or {})
    if how.endswith("_role"):
        yield from _role(root, str(given["name"]), str(given.get("tasks_from", "main")).removesuffix(".yml"), handed)
    elif "{{" not in str(given["file"]):  # what a variable names is known on the host only
        file = place / str(given["file"])
        yield from _tasks(root, file.parent, _read(file), handed)


def _handlers(role: Path, item: Mapping[str, Any]) -> frozenset[str]:
    """Return the tags of the handlers that a task notifies: what they do, it does."""
    notified = item.get("notify") or ()
    names = {notified} if isinstance(notified, str) else set(notified)
    file = role / "handlers" / "main.yml"
    if not names or not file.exists():
        return frozenset()
    called = [each for each in _read(file) if names & {each.get("name"), *_listens(each)}]
    return frozenset(tag for each in called for tag in _tags(each) if tag in (INTERRUPTS, REBOOT))


def _listens(handler: Mapping[str, Any]) -> Sequence[str]:
    topics = handler.get("listen") or ()
    return (topics,) if isinstance(topics, str) else topics


def _changes(item: Mapping[str, Any]) -> bool:
    modules = {key.removeprefix("ansible.builtin.") for key in item}
    looks = bool(modules & set(_LOOKS)) or any(name.endswith("_facts") for name in modules)
    return not (looks or item.get("changed_when") is False or item.get("check_mode") is False)
