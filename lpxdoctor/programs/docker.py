"""Ask Docker what it is, how much room its disks have, and about every engine container; print one JSON object.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts. It only reads. The object has

server         where Docker was asked: "unix:/path" or "address:port"
failure        "" or absent, denied, timeout, failed; reason says it for people, and then nothing else is there
version, info  what Docker answers to /version and /info
disks          {directory of images and containers: {"free_bytes", "total_bytes", "free_inodes", "total_inodes"}}
engines        what _engines.describe returns for each, or null, and then engines_reason says why
"""

from __future__ import annotations

import errno
import json
import os
import socket
from typing import Any

from lpxdoctor.programs import _docker

# Where containerd keeps images when Docker leaves them to it, as a fresh Engine 29 does.
_CONTAINERD_ROOT = "/var/lib/containerd"


def ask() -> dict[str, Any]:
    """Return the object."""
    address = ""
    try:
        address = _docker.server()
        version, info = _docker.get(address, "/version"), _docker.get(address, "/info")
    except (OSError, ValueError) as error:
        reason = ": ".join(filter(None, (address.removeprefix("unix:"), _docker.why(error))))
        return {"server": address, "failure": _word(error), "reason": reason}
    answer = {"server": address, "failure": "", "reason": "", "version": version, "info": info}
    for runtime in (info.get("Runtimes") or {}).values():
        runtime.pop("status", None)  # all that runc can do, at length
    engines, engines_reason = _engines(address) if info.get("Containers") else ([], "")
    return {**answer, "disks": _disks(info), "engines": engines, "engines_reason": engines_reason}


def _engines(address: str) -> tuple[list[dict[str, Any]] | None, str]:
    from lpxdoctor.programs import _engines  # noqa: PLC0415 - most of the cost, for a host that has containers

    try:
        return _engines.describe_all(address), ""
    except (OSError, ValueError) as error:
        return None, _docker.why(error)


def _word(error: Exception) -> str:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "timeout"
    if isinstance(error, PermissionError):
        return "denied"
    absent = isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ECONNREFUSED)
    return "absent" if absent else "failed"


def _disks(info: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the room below the directories that can be looked at from here: Desktop's lie in a virtual machine."""
    in_containerd = any("io.containerd.snapshotter" in str(pair) for pair in info.get("DriverStatus") or [])
    found = {}
    for root in (info.get("DockerRootDir"), _CONTAINERD_ROOT if in_containerd else None):
        try:
            room = os.statvfs(root or "")
        except OSError:
            continue
        found[str(root)] = {
            "free_bytes": room.f_bavail * room.f_frsize,
            "total_bytes": room.f_blocks * room.f_frsize,
            "free_inodes": room.f_favail,
            "total_inodes": room.f_files,
        }
    return found


if __name__ == "__main__":
    print(json.dumps(ask()))
