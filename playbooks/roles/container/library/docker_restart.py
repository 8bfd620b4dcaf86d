#!/usr/bin/python
"""Docker's unit: what is written for it in; a Docker that runs with it, or with what it had before, out."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible.module_utils import dockerd, json_text
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, ask, get

DOCUMENTATION = r"""
module: docker_restart
short_description: Restart Docker where it has not read what is written for it, and go back where it does not come up
description:
  - Restarts and never reloads, for Docker reads runtimes and CDI only when it starts.
  - Containers that ran before and do not run after are started again.
  - In check mode it says whether a restart is due, why, and which containers it would stop.
options:
  path: {description: Docker's daemon.json., type: path, required: true}
  pending: {description: What docker_settings left when it changed the file., type: path, required: true}
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
  limit_s: {description: Seconds until it must answer., type: int, required: true}
  wanted: {description: Whether a restart is due anyway., type: bool, required: true}
author: lpxdoctor
"""

HOOK = Path("/usr/bin/nvidia-container-runtime-hook")
Given = dict[str, Any]


def live(socket: str) -> Given | None:
    """Return /info of the Docker that answers, None where none does."""
    try:
        info: Given = get(socket, "/info")
    except DockerError:
        return None
    return info


def settings(path: str) -> Given:
    """Return what daemon.json holds; {} for one that cannot be read, which docker_settings sees to."""
    try:
        found: Given = json_text.parsed(Path(path).read_text())
    except (OSError, ValueError):
        return {}
    return found


def reasons(given: Given, info: Given | None) -> list[str]:
    """Return why Docker has to be restarted, or started."""
    if info is None:
        return ["it does not answer"]
    found = ["its settings change"] if given["wanted"] else []
    started_s = dockerd.started_at_s()
    if newer(Path(given["pending"]), started_s):
        found.append("it has not read its changed daemon.json")
    # One that came with an upgrade was known to Docker before.
    if newer(HOOK, started_s) and "nvidia" not in (info.get("Runtimes") or {}):
        found.append("the NVIDIA toolkit was installed after it had started")
    file = settings(given["path"])
    found += [
        f"it does not know the runtime {name} of its file"
        for name in file.get("runtimes") or {}
        if name not in (info.get("Runtimes") or {})
    ]
    cdi = (file.get("features") or {}).get("cdi")
    if cdi and tuple(map(int, dockerd.version().split(".")[:1])) >= (25,) and not info.get("CDISpecDirs"):
        found.append("CDI is on in its file and off in it")
    return found


def newer(file: Path, than_s: float) -> bool:
    """Tell whether a file came or changed after a time; the inode's time, for packages carry old ones."""
    with contextlib.suppress(OSError):
        return than_s > 0 and file.stat().st_ctime > than_s
    return False


def running(socket: str) -> dict[str, str]:
    """Return {id: name} of the containers that run."""
    return {each["Id"]: str(each["Names"][0]).lstrip("/") for each in get(socket, "/containers/json")}


def restart(given: Given) -> str:
    """Restart the unit and wait until Docker answers; return why it does not, "" where it does."""
    began_s = time.time()
    if dockerd.ask("systemctl", "show", dockerd.UNIT, "--property=NeedDaemonReload", "--value")[1] == "yes":
        dockerd.ask("systemctl", "daemon-reload")
    # After five failed starts systemd would not try again.
    dockerd.ask("systemctl", "reset-failed", dockerd.UNIT, "docker.socket")
    status, said = dockerd.ask("systemctl", "restart", dockerd.UNIT, limit_s=given["limit_s"])
    while status == 0 and live(given["docker_socket"]) is None:
        state = dockerd.ask("systemctl", "is-active", dockerd.UNIT)[1]
        if state == "failed" or time.time() - began_s > given["limit_s"]:
            status, said = 1, f"Docker's unit is {state} and Docker does not answer."
        time.sleep(0.5)
    return "" if status == 0 else f"{said}\nDocker's own words:\n{dockerd.journal(began_s)}"


def revive(socket: str, before: dict[str, str]) -> tuple[list[str], list[str]]:
    """Start again what ran before; return the names of those, and why others could not be."""
    started, failed = [], []
    now = running(socket)
    for identity, name in before.items():
        if identity not in now and get(socket, f"/containers/{quote(identity)}/json") is not None:
            status, body = ask(socket, f"/containers/{quote(identity)}/start", "POST", timeout_s=60)
            if status in (204, 304):
                started.append(name)
            else:
                failed.append(f"{name}: {body.decode(errors='replace').strip()}")
    return started, failed


def roll_back(given: Given, pending: Path) -> str:
    """Put the former daemon.json back and restart; return what became of it."""
    kept = json.loads(pending.read_text()) if pending.exists() else None
    if not kept or (kept["had"] and not kept["backup"]):
        return "There is no former daemon.json that would be better."
    path = Path(kept["path"])
    refused = path.with_name(f"{path.name}.refused-{time.strftime('%Y%m%d-%H%M%S')}")
    path.replace(refused)
    if kept["had"]:
        Path(kept["backup"]).replace(path)
    pending.unlink()
    reason = restart(given)
    back = "and Docker runs again." if not reason else f"but Docker does not come up with it either: {reason}"
    return f"What was refused is kept in {refused}.\nThe daemon.json of before was put back, {back}"


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "pending": {"type": "path", "required": True},
            "docker_socket": {"type": "path", "required": True},
            "limit_s": {"type": "int", "required": True},
            "wanted": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    socket, pending = given["docker_socket"], Path(given["pending"])
    info = live(socket)
    why = reasons(given, info)
    before = running(socket) if info else {}
    stops = sorted(before.values()) if info and why and not info.get("LiveRestoreEnabled") else []
    if not why or module.check_mode:
        module.exit_json(changed=bool(why), why=why, stops=stops)
    reason = restart(given)
    if reason:
        back = roll_back(given, pending)
        with contextlib.suppress(DockerError):
            revive(socket, before)
        module.fail_json(msg=f"Docker did not come back: {reason}\n{back}")
    with contextlib.suppress(FileNotFoundError):
        pending.unlink()
    started, failed = revive(socket, before)
    for each in failed:
        module.warn(f"This container ran before Docker's restart and does not start again: {each}")
    module.exit_json(changed=True, why=why, stops=stops, started=started)


if __name__ == "__main__":
    main()
