#!/usr/bin/env python3
"""Try whether containers keep their GPU over a `systemctl daemon-reload`, by every path; print one JSON object.

A container by each path of passthrough.py opens every /dev/nvidia* node, systemd reloads, and it opens them again: a
node that could be opened and then is refused is a GPU lost. This acts on the host, so it runs only when asked for, and
not at all where an engine that runs would lose its own GPU by it. The object has

server   where Docker was asked
skipped  why it was not tried, or ""
failure  why nothing could be tried, or ""
paths    [{"path", "error", "before", "after"}]: before and after are {node: errno}, 0 where it could be opened

Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable

from lpxdoctor.programs import _docker

READY_S = 10.0
RELOAD_S = 15.0
_BESIDE = Path(__file__).parent  # passthrough.py and build.py lie here wherever all were sent

# Imports what cuda.py does and no more: nothing else is in the image. Ends by itself when nobody asks it again.
WATCH = """
import json, os, signal
def opened():
    found = {}
    for name in sorted(os.listdir("/dev")):
        node = "/dev/" + name
        if node.startswith(PREFIX) and os.stat(node).st_mode & 0o170000 == 0o020000:
            try:
                os.close(os.open(node, os.O_RDWR))
                found[node] = 0
            except OSError as error:
                found[node] = error.errno
    return found
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
before = opened()
print("ready", flush=True)
if signal.sigtimedwait({signal.SIGUSR1}, 40):
    print(json.dumps({"before": before, "after": opened()}), flush=True)
"""


@dataclass
class Trial:
    """One path: what could be opened before and after, or why it could not be tried."""

    path: str
    error: str = ""
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    container: str = ""


def prove() -> dict[str, Any]:
    """Return the object."""
    answer: dict[str, Any] = {"server": "", "skipped": "", "failure": "", "paths": []}
    proof = runpy.run_path(str(_BESIDE / "passthrough.py"))
    try:
        address = answer["server"] = _docker.server()
        answer["skipped"] = proof["nothing_to_try"](address) or unwise(address)
        if answer["skipped"]:
            return answer
        proof["remove_leftovers"](address)
        image, interpreter, _ = runpy.run_path(str(_BESIDE / "build.py"))["ensure"](address)
        trials = tried(address, image, interpreter, proof["PATHS"], "/dev/nvidia", systemd_reload)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {**answer, "failure": _docker.why(error)}
    return {**answer, "paths": [asdict(trial) for trial in trials]}


def unwise(address: str) -> str:
    """Return why systemd should not be made to reload here, "" where it may."""
    if not Path("/run/systemd/system").exists():
        return "systemd does not run here, so it reloads nothing"
    if os.geteuid() != 0:
        return "a daemon-reload needs root"
    if _docker.get(address, "/info").get("CgroupDriver") != "systemd":
        return ""
    losing = [name for name, host in _running(address) if _hooked(host)]
    return f"it would take the GPU of {', '.join(losing)}: stop that first" if losing else ""


def _running(address: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, HostConfig) of every container that runs."""
    ids = [each["Id"] for each in _docker.get(address, "/containers/json")]
    inspected = [_docker.get(address, f"/containers/{identity}/json") for identity in ids]
    return [(each["Name"].lstrip("/"), each.get("HostConfig") or {}) for each in inspected]


def _hooked(host: dict[str, Any]) -> bool:
    """Tell whether the toolkit's hook may have handed the GPU over, and not Docker."""
    requests = host.get("DeviceRequests") or []
    return host.get("Runtime") == "nvidia" or any(request.get("Driver") != "cdi" for request in requests)


def systemd_reload() -> None:
    """Have systemd read its units again; raise where it does not."""
    subprocess.run(("systemctl", "daemon-reload"), check=True, timeout=RELOAD_S, capture_output=True)


def tried(
    address: str, image: str, interpreter: str, paths: Any, prefix: str, reload: Callable[[], None]
) -> list[Trial]:
    """Return how each path fared over one reload; no container stays."""
    proof = runpy.run_path(str(_BESIDE / "passthrough.py"))
    trials = [Trial(path) for path, *_ in paths]
    try:
        for trial, (_, _, host, environment) in zip(trials, paths):
            config = {
                "Image": image,
                "Cmd": [interpreter, "-I", "-S", "-B", "-c", f"PREFIX = {prefix!r}\n{WATCH}"],
                "Env": list(environment),
                "Labels": {proof["LABEL"]: f"reload {trial.path}"},
                "HostConfig": {"NetworkMode": "none", "LogConfig": {"Type": "json-file", "Config": {}}, **host},
            }
            _start(address, trial, config, proof["streams"])
        if any(not trial.error for trial in trials):
            reload()
        for trial in trials:
            if not trial.error:
                _ask_again(address, trial, proof["streams"])
    finally:
        for trial in trials:
            if trial.container:
                proof["remove"](address, trial.container)
    return trials


def _start(address: str, trial: Trial, config: dict[str, Any], streams: Any) -> None:
    """Start a container and wait until it has opened its nodes once."""
    status, body = _docker.request(address, "POST", "/containers/create", config)
    if status != 201:
        trial.error = _docker.message(body)
        return
    trial.container = json.loads(body)["Id"]
    status, body = _docker.request(address, "POST", f"/containers/{trial.container}/start")
    if status != 204:
        trial.error = _docker.message(body)
        return
    if "ready" not in _written(address, trial.container, streams, "ready"):
        trial.error = f"the program in the container did not start within {READY_S:.0f} s"


def _ask_again(address: str, trial: Trial, streams: Any) -> None:
    status, body = _docker.request(address, "POST", f"/containers/{trial.container}/kill?signal=SIGUSR1")
    if status != 204:
        trial.error = f"the container ended at the reload: {_docker.message(body)}"
        return
    text = _written(address, trial.container, streams, "}}")
    try:
        told = json.loads(text.partition("\n")[2])
    except ValueError:
        trial.error = f"the program in the container said: {text[-300:].strip() or 'nothing'}"
        return
    trial.before, trial.after = told["before"], told["after"]


def _written(address: str, identity: str, streams: Any, until: str) -> str:
    """Return what a container has written once that holds a text, or after READY_S."""
    ends, text = time.monotonic() + READY_S, ""
    while until not in text and time.monotonic() < ends:
        time.sleep(0.05)
        _, framed = _docker.request(address, "GET", f"/containers/{identity}/logs?stdout=1&stderr=1")
        out, err = streams(framed)
        text = (out + err).decode("utf-8", "replace")
    return text


if __name__ == "__main__":
    print(json.dumps(prove()), flush=True)
