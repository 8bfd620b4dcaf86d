#!/usr/bin/python
"""Engines in containers: their names in; stopped when they have answered what they were asked, or busy, out."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional
from urllib.parse import quote

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, ask, container

DOCUMENTATION = r"""
module: engine_drain
short_description: Stop engines when they are idle
description:
  - New connections are refused by the host's packet filter; requests of connections that are open are still taken.
  - By the engine's /metrics it is waited until nothing runs or waits in it, then the container is stopped.
options:
  names: {description: The containers., type: list, elements: str, required: true}
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
  limit_s: {description: Seconds until all must be idle., type: int, required: true}
  record: {description: Where it is kept which engines were stopped; empty for nowhere., type: str, required: true}
  strict: {description: 'Whether one that stays busy, or does not tell, goes on running.', type: bool, required: true}
author: lpxdoctor
"""

REQUESTS = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
MARK = 0x6C7078  # of our own questions, which the filter lets pass
SO_MARK = 36  # asm-generic/socket.h; Python has no name for it
CALM = 2  # idle answers in a row: between two a request may arrive on an open connection
STOP_S = 30


class Door(NamedTuple):
    """Where an engine takes requests."""

    address: str
    port: int
    on_host: bool


def door(inspected: dict[str, Any]) -> Door | None:
    """Return where the engine listens, None where it is not known."""
    labels, networks = inspected["Config"].get("Labels") or {}, inspected["NetworkSettings"].get("Networks") or {}
    if labels.get("lpxdoctor.network") == "host":
        words = [*(inspected["Args"] or [])]
        bound = words[words.index("--host") + 1] if "--host" in words[:-1] else "127.0.0.1"
        port = labels.get("lpxdoctor.port", "")
        return Door("127.0.0.1" if bound == "0.0.0.0" else bound, int(port), True) if port.isdigit() else None  # noqa: S104
    addresses = [each["IPAddress"] for each in networks.values() if each.get("IPAddress")]
    return Door(addresses[0], 8000, False) if addresses else None


class _Marked(http.client.HTTPConnection):
    """A connection that the filter lets pass, where this user may mark it."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
        self.sock.connect((self.host, self.port))


def requests_in(at: Door) -> Optional[float]:  # noqa: UP045 - evaluated by Python 3.9
    """Return how many requests the engine has; 0 where nobody listens, None where it does not tell."""
    connection = _Marked(at.address, at.port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode(errors="replace")
    except ConnectionRefusedError:
        return 0
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    counts = REQUESTS.findall(text)
    return sum(map(float, counts)) if counts else None


def rules(at: Door) -> list[list[str]]:
    """Return iptables' rules against new connections, without the action."""
    to = [] if at.on_host else ["-d", at.address]
    new = [*to, "-p", "tcp", "--dport", str(at.port), "--syn", "-m", "mark", "!", "--mark", hex(MARK)]
    # From elsewhere, and from this host or through Docker's proxy.
    chains = ["INPUT"] if at.on_host else ["FORWARD", "OUTPUT"]
    tail = ["-m", "comment", "--comment", "lpxdoctor-drain", "-j", "REJECT", "--reject-with", "tcp-reset"]
    return [[chain, *new, *tail] for chain in chains]


@contextlib.contextmanager
def closed(at: Door) -> Iterator[bool]:
    """Refuse new connections meanwhile; yield whether that could be had."""
    tool = shutil.which("iptables", path="/usr/sbin:/sbin:/usr/bin")
    done = tool is not None and all(filter_says([tool, "-w", "-I", *rule]) for rule in rules(at))
    try:
        yield done
    finally:
        if tool:
            for rule in rules(at):
                while filter_says([tool, "-w", "-D", *rule]):  # also what an interrupted run has left
                    pass


def filter_says(argv: list[str]) -> bool:
    """Return whether iptables did it."""
    return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0


def idle(at: Door, deadline_s: float, strict: bool) -> str:
    """Wait until the engine has no request; return why it has not come to that."""
    calm, left = 0, None
    while calm < CALM:
        left = requests_in(at)
        calm = calm + 1 if left == 0 else 0
        if left is None and not strict:
            return "it does not tell how many requests it has"
        if time.monotonic() > deadline_s and calm < CALM:
            return f"requests run or wait in it ({left:.0f})" if left else "it does not tell how many requests it has"
        time.sleep(0.5)
    return ""


def stop(given: dict[str, Any], name: str) -> None:
    """Stop the container, and keep first that it was stopped."""
    if given["record"]:
        record = Path(given["record"])
        record.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        before = json.loads(record.read_text()) if record.exists() else []
        record.write_text(json.dumps(sorted({*before, name})))
    status, body = ask(given["docker_socket"], f"/containers/{quote(name)}/stop?t={STOP_S}", "POST", STOP_S + 30)
    if status not in (204, 304):
        raise DockerError(f"Docker did not stop {name}: {body.decode(errors='replace').strip()}")


def drain(given: dict[str, Any], name: str, deadline_s: float) -> str:
    """Drain one engine; return what kept it busy, "" where it had become idle."""
    inspected = container(given["docker_socket"], name)
    if inspected is None or not inspected["State"]["Running"]:
        return ""
    at = door(inspected)
    if at is None:
        reason = "where it listens is not known"
    else:
        with closed(at):
            reason = idle(at, deadline_s, given["strict"])
            if not reason or not given["strict"]:
                stop(given, name)
            return reason
    if not given["strict"]:
        stop(given, name)
    return reason


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "docker_socket": {"type": "path", "required": True},
            "limit_s": {"type": "int", "required": True},
            "record": {"type": "str", "required": True},
            "strict": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=bool(given["names"]), stopped=given["names"])
    deadline_s = time.monotonic() + given["limit_s"]
    stopped: list[str] = []
    for name in given["names"]:
        try:
            reason = drain(given, name, deadline_s)
        except DockerError as error:
            module.fail_json(msg=str(error), stopped=stopped)
        if reason and given["strict"]:
            module.fail_json(
                msg=f"{name} was not stopped: {reason} after {given['limit_s']} s, and takes new ones again.\n"
                "Take it out of its load balancer first, give it more time with drain_limit_s, or gpu_work=force.",
                stopped=stopped,
            )
        if reason:
            module.warn(f"{name} was stopped although {reason}.")
        stopped.append(name)
    module.exit_json(changed=bool(stopped), stopped=stopped)


if __name__ == "__main__":
    main()
