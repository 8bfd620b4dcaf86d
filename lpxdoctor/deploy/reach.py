"""How a host is reached: the variables of its inventory in, what to keep of them and ssh's argv out."""

import shlex
from collections.abc import Mapping
from typing import Any

Connection = Mapping[str, str | int | bool]


def connection(told: Mapping[str, Any]) -> dict[str, str | int | bool]:
    """Return the inventory variables that say something; passwords are not among them."""
    return {name: value for name, value in told.items() if value not in {"", False}}


def ssh(reached: Connection) -> tuple[str, ...]:
    """Return the argv that runs a command on the host when one is appended, () for this machine."""
    if reached.get("ansible_connection") == "local":
        return ()
    user, host = reached.get("ansible_user"), reached["ansible_host"]
    port, key = reached.get("ansible_port"), reached.get("ansible_ssh_private_key_file")
    return (
        *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
        *(("-p", str(port)) if port else ()),
        *(("-i", str(key)) if key else ()),
        *shlex.split(str(reached.get("ansible_ssh_common_args", ""))),
        *shlex.split(str(reached.get("ansible_ssh_extra_args", ""))),
        f"{user}@{host}" if user else str(host),
        *(("sudo", "-n") if reached.get("ansible_become") else ()),
    )
