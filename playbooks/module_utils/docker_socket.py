"""The Docker Engine of this host: a request to its socket in, its answer or a sentence on why there is none out."""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import getpass
import http.client
import json
import socket
import struct
from typing import Any
from urllib.parse import quote

State = dict[str, Any]


class DockerError(Exception):
    """The engine did not answer, or refused; the message is for people and says what to do."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, target: str, method: str = "GET", timeout_s: float = 20) -> tuple[int, bytes]:
    """Return status and body of one request to the socket at path; the newest API version is used."""
    connection = _Connection(path, timeout_s)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise DockerError(_explain(error, path, timeout_s)) from error
    finally:
        connection.close()


def get(path: str, target: str) -> Any:
    """Return the JSON of one GET; None where the engine knows no such thing (404)."""
    status, body = ask(path, target)
    if status == 404:
        return None
    if status != 200:
        raise DockerError(f"Docker refused {target}: {status} {body.decode(errors='replace')[:300]}")
    return json.loads(body)


def container(path: str, name: str) -> State | None:
    """Return what `docker inspect` shows of a container, None when there is none."""
    found: State | None = get(path, f"/containers/{quote(name)}/json")
    return found


def log_tail(path: str, name: str, lines: int) -> list[str]:
    """Return the last lines of a container's output, stdout and stderr in the order they came."""
    status, body = ask(path, f"/containers/{quote(name)}/logs?stdout=1&stderr=1&tail={lines}")
    if status != 200:
        return []
    return _payload(body).decode(errors="replace").splitlines()


def _payload(stream: bytes) -> bytes:
    """Return the bytes of a multiplexed stream: frames of stream number, three zeros, length, content."""
    content, position = b"", 0
    while position + 8 <= len(stream):
        length = int(struct.unpack(">I", stream[position + 4 : position + 8])[0])
        content += stream[position + 8 : position + 8 + length]
        position += 8 + length
    return content


def _explain(error: Exception, path: str, timeout_s: float) -> str:
    if isinstance(error, FileNotFoundError):
        return (
            f"There is no Docker Engine: {path} does not exist.\n"
            "Install Docker Engine from your distribution's packages and start it: systemctl enable --now docker"
        )
    if isinstance(error, PermissionError):
        user = getpass.getuser()
        return (
            f"The user {user} may not use Docker: {path}: permission denied.\n"
            f"Add it to the group (sudo usermod -aG docker {user}) and log in again, connect as root, "
            "or set ansible_become: true in the inventory."
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"The Docker Engine does not run: {path} is there and nothing listens.\n"
            "Start it: systemctl start docker. Why it ended: journalctl -u docker -n 50"
        )
    if isinstance(error, socket.timeout):
        return f"The Docker Engine did not answer within {timeout_s:.0f} s at {path}.\nSee: journalctl -u docker -n 50"
    return f"The Docker Engine did not answer at {path}: {error}.\nSee: systemctl status docker"
