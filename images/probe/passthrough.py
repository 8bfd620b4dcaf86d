#!/usr/bin/env python3
"""Try cuInit in a container by every path that Docker may hand a GPU over; print one JSON object.

The requests are those that the docker client makes for --gpus, --runtime and --device, sent to Docker's socket: one
way on every host, and Docker's own message when one is refused. The object has

server   where Docker was asked: "unix:/path" or "address:port"
skipped  why there is nothing to try, or ""
failure  why nothing could be tried, or ""
image    the probe image; made says whether it had to be made
paths    [{"path", "argv", "stage", "error", "exit", "stdout", "stderr", "seconds"}]: argv is what a person types for
         the same; stage is where it ended: create, start, run, or late; error is what Docker said; exit is null where
         the program did not end; stdout is the JSON value that cuda.py printed, null where it printed none

All paths have the same deadline. Nothing stays behind: a container removes itself, the program in it ends at its own
deadline when nobody is left to end it, and what was made but never started is removed by the next run.
Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import struct
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable

from lpxdoctor.programs import _docker

LIMIT_S = 22.0  # of the whole; collect kills it after 25
LABEL = "lpxdoctor-probe"
_LEFTOVER_S = 120  # made this long ago and never started: whoever made it is gone
_GRACE_S = 1.0
_NVIDIA = "0x10de"
PROGRAM = "/probe/cuda.py"  # as build.py puts it

Ensure = Callable[[str], "tuple[str, str, bool]"]

_GPU: dict[str, Any] = {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}
_CDI: dict[str, Any] = {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}
# Name, what a person types, and the same for Docker's API: HostConfig and environment.
PATHS: tuple[tuple[str, tuple[str, ...], dict[str, Any], tuple[str, ...]], ...] = (
    ("--gpus", ("--gpus", "all"), {"DeviceRequests": [_GPU]}, ()),
    (
        "--runtime",
        ("--runtime=nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all"),
        {"Runtime": "nvidia"},
        ("NVIDIA_VISIBLE_DEVICES=all",),
    ),
    ("CDI", ("--device", "nvidia.com/gpu=all"), {"DeviceRequests": [_CDI]}, ()),
)


@dataclass
class Trial:
    """How one path ended."""

    path: str
    argv: tuple[str, ...]
    stage: str = "create"
    error: str = ""
    exit: int | None = None
    stdout: Any = None
    stderr: str = ""
    seconds: float = 0.0


def prove() -> dict[str, Any]:
    """Return the object."""
    ends = time.monotonic() + LIMIT_S
    answer: dict[str, Any] = {"server": "", "skipped": "", "failure": "", "image": "", "made": False, "paths": []}
    try:
        address = answer["server"] = _docker.server()
        answer["skipped"] = nothing_to_try(address)
        if answer["skipped"]:
            return answer
        remove_leftovers(address)
        # build.py lies beside this file wherever both were sent.
        ensure: Ensure = runpy.run_path(str(Path(__file__).with_name("build.py")))["ensure"]
        answer["image"], interpreter, answer["made"] = ensure(address)
    except (OSError, ValueError) as error:
        return {**answer, "failure": _docker.why(error)}
    trials = try_all(address, answer["image"], interpreter, ends)
    return {**answer, "paths": [asdict(trial) for trial in trials]}


def nothing_to_try(address: str) -> str:
    """Return why no path can hand a GPU over, "" where one may: it is not worth three containers."""
    vendors = (path.read_text() for path in Path("/sys/bus/pci/devices").glob("*/vendor"))
    if not any(vendor.strip() == _NVIDIA for vendor in vendors) and not any(
        Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")
    ):
        return "there is no NVIDIA GPU to hand over"
    components = _docker.get(address, "/version").get("Components") or []
    if any("Podman" in str(component.get("Name")) for component in components):
        return "Podman answers at Docker's socket, and has ways of its own to hand a GPU over"
    return ""


def try_all(address: str, image: str, interpreter: str, ends: float) -> list[Trial]:
    """Try all paths at once and return how each ended, at the time ends (of time.monotonic) at the latest."""
    # cuda.py ends by itself at its deadline, also where whoever started the container was killed.
    deadline_s = f"{max(1.0, ends - time.monotonic() - _GRACE_S):.0f}"
    trials, threads = [], []
    for path, options, host, environment in PATHS:
        typed = ("docker", "run", "--rm", "--network", "none", *options, image, interpreter, "-I", "-S", PROGRAM)
        trial = Trial(path, typed)
        config = {
            "Image": image,
            "Cmd": [interpreter, "-I", "-S", "-B", PROGRAM, deadline_s],
            "Env": list(environment),
            "Labels": {LABEL: path},
            "HostConfig": {"AutoRemove": True, "NetworkMode": "none", "LogConfig": {"Type": "none"}, **host},
        }
        trials.append(trial)
        threads.append(threading.Thread(target=_try, args=(address, trial, config, ends), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()) + _GRACE_S)
    return trials


def _try(address: str, trial: Trial, config: dict[str, Any], ends: float) -> None:
    """Create, start and follow one container, and see it gone."""
    began = time.monotonic()
    identity = ""
    if began >= ends:
        trial.stage, trial.error = "late", f"its image took the whole of the {LIMIT_S:.0f} s"
        return
    try:
        status, body = _docker.request(address, "POST", "/containers/create", config, ends - began)
        if status != 201:
            trial.error = _docker.message(body)
            return
        identity = json.loads(body)["Id"]
        _follow(address, identity, trial, ends)
    except (OSError, ValueError) as error:
        late = isinstance(error, (socket.timeout, TimeoutError))
        trial.error = f"no end within {time.monotonic() - began:.0f} s" if late else _docker.why(error)
        trial.stage = "late" if late else trial.stage
    finally:
        trial.seconds = round(time.monotonic() - began, 2)
        if identity:  # already gone, or going, where it ran to its end
            remove(address, identity)


def _follow(address: str, identity: str, trial: Trial, ends: float) -> None:
    """Start a container and take what it writes; both are asked for before, or its end could come first."""
    trial.stage = "start"
    at = f"/containers/{identity}"
    left = max(0.01, ends - time.monotonic())
    with _docker.connected(address, left) as output, _docker.connected(address, left) as end:
        _docker.send(output, "POST", at + "/attach?stream=1&stdout=1&stderr=1")
        written = _after_head(output)
        _docker.send(end, "POST", at + "/wait?condition=next-exit")
        ended = _after_head(end)
        status, body = _docker.request(address, "POST", at + "/start", timeout_s=left)
        if status != 204:
            trial.error = _docker.message(body)
            return
        trial.stage = "run"
        out, err = streams(written + _rest(output, ends))
        said = ended + _rest(end, ends)  # in chunks or not
        trial.exit = json.loads(said[said.index(b"{") : said.rindex(b"}") + 1])["StatusCode"]
    trial.stderr = err.decode("utf-8", "replace").strip()[-2000:]
    try:
        trial.stdout = json.loads(out)
    except ValueError:
        trial.stderr = f"{trial.stderr}\n{out.decode('utf-8', 'replace')[-500:]}".strip()


def _after_head(connection: socket.socket) -> bytes:
    """Read an answer's head and return what came behind it already."""
    read = b""
    while b"\r\n\r\n" not in read:
        data = connection.recv(1 << 12)
        if not data:
            raise ValueError(f"Docker closed the connection: {read[:200]!r}")
        read += data
    head, _, rest = read.partition(b"\r\n\r\n")
    if head.split(None, 2)[1] != b"200":
        raise ValueError(_docker.message(rest) or head.decode("utf-8", "replace"))
    return rest


def _rest(connection: socket.socket, ends: float) -> bytes:
    parts: list[bytes] = []
    while True:
        connection.settimeout(max(0.01, ends - time.monotonic()))
        data = connection.recv(1 << 16)
        if not data:
            return b"".join(parts)
        parts.append(data)


def streams(framed: bytes) -> tuple[bytes, bytes]:
    """Return (standard output, standard error) of Docker's framing: a stream's number, three zeros, a length, bytes."""
    streams: dict[int, bytes] = {1: b"", 2: b""}
    at = 0
    while at + 8 <= len(framed):
        number, length = struct.unpack_from(">BxxxI", framed, at)
        streams[number] = streams.get(number, b"") + framed[at + 8 : at + 8 + length]
        at += 8 + length
    return streams[1], streams[2]


def remove(address: str, identity: str) -> None:
    """Remove a container; one in uninterruptible sleep stays, and goes by itself once it ends."""
    try:
        _docker.request(address, "DELETE", f"/containers/{identity}?force=1&v=1", timeout_s=2)
    except (OSError, ValueError):
        return


def remove_leftovers(address: str) -> None:
    """Remove what an earlier run that was killed had made and not started."""
    for each in _docker.get(address, "/containers/json?all=1"):
        if (
            LABEL in (each.get("Labels") or {})
            and each["State"] != "running"
            and each["Created"] < time.time() - _LEFTOVER_S
        ):
            remove(address, each["Id"])


if __name__ == "__main__":
    print(json.dumps(prove()), flush=True)
    os._exit(0)  # without waiting for a thread whose container does not answer
