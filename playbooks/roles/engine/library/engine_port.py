#!/usr/bin/python
"""Whether an engine may listen on a port: address and port in; free, ours, or who holds it out."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, get

DOCUMENTATION = r"""
module: engine_port
short_description: Fail when a TCP port is held by something else than the containers named
options:
  address: {description: The address that will be listened on., type: str, required: true}
  port: {description: The TCP port., type: int, required: true}
  containers: {description: Containers that may hold it., type: list, elements: str, required: true}
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
author: lpxdoctor
"""

LISTENING = "0A"  # a state in /proc/net/tcp (the kernel's include/net/tcp_states.h)
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
Container = dict[str, Any]


def name_of(container: Container) -> str:
    """Return the name that people use."""
    return str(container["Names"][0]).lstrip("/")


def listed_holder(containers: list[Container], address: str, port: int) -> str | None:
    """Return the container that publishes the port, or is labelled as listening on it in the host's network."""
    for container in containers:
        for published in container.get("Ports") or []:
            if published.get("PublicPort") == port and overlap(published.get("IP", "::"), address):
                return name_of(container)
        labels = container.get("Labels") or {}
        if labels.get("lpxdoctor.network") == "host" and labels.get("lpxdoctor.port") == str(port):
            return name_of(container)
    return None


def overlap(one: str, other: str) -> bool:
    """Tell whether two listeners with these addresses exclude each other on the same port."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return first == second or first.is_unspecified or second.is_unspecified


def listeners(port: int) -> Iterator[tuple[str, str]]:
    """Yield address and inode of every socket that listens on the port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in Path("/proc/net", table).read_text().splitlines()[1:]:
                columns = row.split()
                address, _, port_hex = columns[1].partition(":")
                if columns[3] == LISTENING and int(port_hex, 16) == port:
                    yield decoded(address), columns[9]


def decoded(address_hex: str) -> str:
    """Return an address of /proc/net/tcp, whose 32-bit words are in the machine's (little-endian) order."""
    words = bytes.fromhex(address_hex)
    address = ipaddress.ip_address(b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4)))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def process_with(inode: str, containers: list[Container]) -> str:
    """Name the process that has the socket, and its container; what this user cannot see is said so."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()) == f"socket:[{inode}]":
                return describe(link.parent.parent, containers)
    return "a process that this user cannot see (as root: ss -ltnp)"


def describe(process: Path, containers: list[Container]) -> str:
    """Return "container NAME" for a process in one, else its command and process id."""
    identity = CONTAINER_ID.search((process / "cgroup").read_text())
    for container in containers:
        if identity and container["Id"] == identity.group():
            return f"container {name_of(container)}"
    return f"{(process / 'comm').read_text().strip()} (process {process.name})"


def holder(address: str, port: int, ours: list[str], socket: str) -> str | None:
    """Return who holds the port, None when it is free or held by one of our containers."""
    containers: list[Container] = get(socket, "/containers/json")
    listed = listed_holder(containers, address, port)
    if listed is not None:
        return None if listed in ours else f"container {listed}"
    for bound, inode in listeners(port):
        if overlap(bound, address):
            found = process_with(inode, containers)
            return None if found in [f"container {name}" for name in ours] else found
    return None


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "port": {"type": "int", "required": True},
            "containers": {"type": "list", "elements": "str", "required": True},
            "docker_socket": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        found = holder(given["address"], given["port"], given["containers"], given["docker_socket"])
    except DockerError as error:
        module.fail_json(msg=str(error))
    if found is not None:
        module.fail_json(
            msg=f"Port {given['port']} on {given['address']} is taken by {found}.\n"
            "Stop it, or deploy on another port with --port."
        )
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
