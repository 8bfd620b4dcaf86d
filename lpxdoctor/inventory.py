"""Which hosts a playbook runs on: what was typed in, Ansible inventories as files or mappings out."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lpxdoctor.errors import UsageError
from lpxdoctor.files import is_there

LOCAL_HOST = "localhost"
# One entry of a list: [USER@]HOST[:PORT], with brackets around an IPv6 address.
# None begins with a dash: ssh would take it for an option, and it is what follows `-i` when its value was forgotten.
_DESTINATION = re.compile(
    r"(?:(?P<user>[^-@\s][^@\s]*)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^-@:\s\[\]][^@:\s\[\]]*)(?::(?P<port>\d+))?"
)

Source = Path | Mapping[str, Any]


def local() -> Source:
    """Return the inventory that is this machine, with the Python that runs lpxdoctor: it has what the modules need."""
    variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    return {"all": {"hosts": {LOCAL_HOST: variables}}}


def parse(text: str) -> Source:
    """Return the inventory meant by the value of -i: a file, or hosts as [USER@]HOST[:PORT] separated by commas.

    Raises:
        UsageError: it is neither.
    """
    path = Path(text)
    if is_there(text):
        return path
    if "/" in text or path.suffix in {".yml", ".yaml", ".ini"}:
        raise UsageError(f"There is no inventory {text}.\nGive -i a file, or hosts: -i root@10.0.0.5,root@10.0.0.6")
    entries = [_destination(entry) for entry in text.split(",") if entry.strip()]
    hosts = dict(entries)
    if not hosts:
        raise UsageError("The inventory names no host.\nGive -i a file, or hosts: -i root@10.0.0.5,root@10.0.0.6")
    if len(hosts) < len(entries):
        again = next(host for index, (host, _) in enumerate(entries) if host in dict(entries[:index]))
        raise UsageError(
            f"{again} is named twice.\nGive each host once; for several SSH servers at one address, an inventory file "
            "with a name, ansible_host and ansible_port of each."
        )
    return {"all": {"hosts": hosts}}


def _destination(entry: str) -> tuple[str, dict[str, Any]]:
    match = _DESTINATION.fullmatch(entry.strip())
    if match is None:
        raise UsageError(
            f"{entry.strip()!r} is not a host.\nWrite it as [USER@]HOST[:PORT], such as root@10.0.0.5:2222."
        )
    host = match["host"].strip("[]")
    variables: dict[str, Any] = {"ansible_host": host}
    if match["user"]:
        variables["ansible_user"] = match["user"]
    if match["port"]:
        variables["ansible_port"] = int(match["port"])
    return host, variables


def for_hosts(variables: Mapping[str, Mapping[str, Any]]) -> Source:
    """Return an inventory that adds variables to hosts of another one: host -> its variables."""
    return {"all": {"hosts": {host: dict(values) for host, values in variables.items()}}}


class _Literal(yaml.SafeDumper):
    """Writes text that looks like a template as what it is: a chat template among the arguments is not Ansible's."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("!unsafe" if re.search(r"\{[{%#]", text) else "tag:yaml.org,2002:str", text)


_Literal.add_representer(str, _text)


def to_yaml(source: Mapping[str, Any]) -> str:
    """Return a mapping as a YAML inventory in which no value is a template."""
    return yaml.dump(dict(source), Dumper=_Literal)
