"""Which hosts a fleet has: an inventory of any kind that Ansible reads in, its hosts and how to reach them out."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpxdoctor import bundled
from lpxdoctor.errors import UsageError
from lpxdoctor.inventory import Source

READ_LIMIT_S = 60.0  # a dynamic inventory asks a cloud or a database
_ROUNDS = 5  # a template may give a template
# What says how to reach a host; passwords are not among it.
_CONNECTION = re.compile(
    r"ansible_(connection|timeout|python_interpreter|(ssh_)?(host|port|user|private_key_file)|ssh_(common|extra)_args"
    r"|become(_method|_user)?)"
)


@dataclass(frozen=True)
class FleetHost:
    """A host by its name in the inventory, and the variables that say how to reach it (no passwords among them)."""

    name: str
    variables: Mapping[str, Any]


def hosts(source: Source) -> tuple[FleetHost, ...]:
    """Return all hosts of an inventory, in its order.

    Raises:
        UsageError: it cannot be read as an inventory, or names no host.
    """
    listing = _read(source) if isinstance(source, Path) else _typed(source)
    known: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    names = list(dict.fromkeys(_members(listing, "all", set())))
    if not names:
        raise UsageError(
            f"{source if isinstance(source, Path) else 'The inventory'} names no host, so nothing was asked.\n"
            "Name at least one: a line of its own in an INI file, or -i root@10.0.0.5,root@10.0.0.6"
        )
    return tuple(FleetHost(name, _connection(name, known.get(name, {}))) for name in names)


def _typed(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the listing of an inventory that was typed: hosts of the group all, with their variables."""
    members: Mapping[str, Any] = source["all"]["hosts"]
    return {"_meta": {"hostvars": members}, "all": {"hosts": list(members)}}


def _read(path: Path) -> Mapping[str, Any]:
    argv = (sys.executable, "-m", "ansible", "inventory", "-i", str(path.resolve()), "--list")
    with tempfile.TemporaryDirectory(prefix="lpxdoctor-") as home:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,  # Ansible refuses one that does not block, as an ssh beside us makes ours
                capture_output=True,
                text=True,
                env=_environment(home),
                timeout=READ_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"The inventory {path} gave no list of hosts within {READ_LIMIT_S:.0f} s.\n"
                f"See what it waits for: {' '.join(argv[3:])}"
            ) from None
    if done.returncode != 0:
        raise UsageError(
            f"{path} cannot be read as an Ansible inventory:\n{_said(done.stderr)}\n"
            f"See all that Ansible says: ansible-inventory -i {path} --list"
        )
    listing: Mapping[str, Any] = json.loads(done.stdout)
    return listing


def _environment(home: str) -> dict[str, str]:
    """Return this environment, which a dynamic inventory may need, without what would set Ansible up another way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    return kept | {
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(bundled.PLAYBOOKS / "ansible.cfg"),  # what cannot be parsed is an error in it
        "ANSIBLE_HOME": home,
        "ANSIBLE_NOCOLOR": "True",
    }


def _said(stderr: str) -> str:
    """Return the reasons among what Ansible said: each plugin that could not read the file has one."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("[", "Failed to parse", "<<<", "(source", "Origin:"))]
    return "\n".join(f"  {line}" for line in dict.fromkeys(reasons or lines[-3:]))


def _members(listing: Mapping[str, Any], group: str, seen: set[str]) -> Iterator[str]:
    """Yield the hosts of a group and of the groups in it; a host may come more than once."""
    if group in seen:
        return
    seen.add(group)
    entry = listing.get(group, {})
    yield from entry.get("hosts", ())
    for child in entry.get("children", ()):
        yield from _members(listing, child, seen)


def _connection(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host's connection variables; a template among them is replaced by its value where it has one."""
    wanted = {key: value for key, value in variables.items() if _CONNECTION.fullmatch(key)}
    if not any(is_template(value) for value in wanted.values()):
        return wanted
    return {key: _rendered(value, {**variables, "inventory_hostname": name}) for key, value in wanted.items()}


def is_template(value: Any) -> bool:
    """Tell whether a variable's value is one that Ansible would compute."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _rendered(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return what a template comes to by the host's own variables; the template itself where that is not enough."""
    from jinja2 import StrictUndefined, TemplateError  # noqa: PLC0415 - few inventories have templates
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    environment = SandboxedEnvironment(undefined=StrictUndefined)
    for _ in range(_ROUNDS):
        if not is_template(value):
            break
        try:
            value = environment.from_string(value).render(variables)
        except (TemplateError, TypeError, ValueError):  # Ansible's own filters and look-ups are not known here
            break
    return value
