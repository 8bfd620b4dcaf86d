#!/usr/bin/python
"""What works on this host's GPUs: /proc and Docker in; processes with a GPU open, by engine or foreign, out."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, get

DOCUMENTATION = r"""
module: gpu_work
short_description: Find the processes that have a GPU open, and lpxdoctor's engines that run
options:
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
author: lpxdoctor
"""

DEVICE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm|-caps/.+)")
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# They keep a GPU open to look after it, and are no work.
CARETAKERS = (
    *(
        "nvidia-persiste",
        "nv-fabricmanage",
        "nv-hostengine",
        "nvidia-smi",
        "dcgm-exporter",
        "dcgm",
        "nvsm_core",
        "nvlsm",
    ),
    *("nvidia-imex", "nvidia-powerd"),
)


class Work(NamedTuple):
    """A process with a GPU open."""

    pid: int
    command: str
    user: str
    devices: tuple[str, ...]
    container: str  # its name, "" for a process of the host


def devices_of(process: Path) -> tuple[str, ...]:
    """Return the device nodes of GPUs that a process has open."""
    found = set()
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = str(link.readlink())
            if DEVICE.fullmatch(target):
                found.add(target)
    return tuple(sorted(found))


def processes(names: dict[str, str]) -> tuple[list[Work], int]:
    """Return the processes at work, and how many this user may not look into."""
    found, closed = [], 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            devices = devices_of(process)
            command = (process / "comm").read_text().strip()
        except PermissionError:
            closed += 1
            continue
        except OSError:  # ended meanwhile
            continue
        if devices and command not in CARETAKERS:
            with contextlib.suppress(OSError):
                found.append(work(process, command, devices, names))
    return sorted(found), closed


def work(process: Path, command: str, devices: tuple[str, ...], names: dict[str, str]) -> Work:
    """Return all that people ask about a process."""
    identity = CONTAINER_ID.search((process / "cgroup").read_text())
    container = names.get(identity[0], f"of id {identity[0][:12]}") if identity else ""
    uid = process.stat().st_uid
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # of a container
        user = str(uid)
    return Work(int(process.name), command, user, devices, container)


def containers(socket: str) -> list[dict[str, Any]]:
    """Return the containers that run; none where there is no Docker."""
    try:
        found: list[dict[str, Any]] = get(socket, "/containers/json")
    except DockerError:
        return []
    return found


def sentence(each: Work) -> str:
    """Return one line for people."""
    where = f" in container {each.container}" if each.container else ""
    return f"process {each.pid} ({each.command} of {each.user}{where}) has {', '.join(each.devices)} open"


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={"docker_socket": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    running = containers(module.params["docker_socket"])
    names = {each["Id"]: str(each["Names"][0]).lstrip("/") for each in running}
    engines = sorted(names[each["Id"]] for each in running if (each.get("Labels") or {}).get("lpxdoctor.engine"))
    found, closed = processes(names)
    if closed and os.getuid() != 0:
        module.fail_json(
            msg=f"Whether GPUs work here cannot be told: {closed} processes are closed to this user.\n"
            "Connect as root, or set ansible_become: true in the inventory."
        )
    foreign = [sentence(each) for each in found if each.container not in engines]
    told = [sentence(each) for each in found]
    idle = [name for name in engines if name not in {each.container for each in found}]
    module.exit_json(
        changed=False,
        engines=engines,
        foreign=foreign,
        work=[*told, *(f"container {name} is an engine that lpxdoctor deployed" for name in idle)],
    )


if __name__ == "__main__":
    main()
