"""Where Docker is and a request to it in; its answer out, over the socket and without the docker client.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 8.0


def server() -> str:
    """Return where the caller's docker client would find Docker: "unix:/path" or "address:port".

    Raises ValueError where that is nothing to connect to from here.
    """
    named = os.environ.get("DOCKER_HOST", "") or _of_context()
    if named:
        scheme, _, rest = named.partition("://")
        if scheme == "unix":
            return "unix:" + rest
        if scheme == "tcp" and not os.environ.get("DOCKER_TLS_VERIFY"):
            return rest.rstrip("/")
        raise ValueError(f"{named} is not reached from here: run lpxdoctor on the host where that Docker runs")
    rootless = f"/run/user/{os.getuid()}/docker.sock"
    rootful = os.access(SOCKET, os.F_OK) or not os.access(rootless, os.F_OK)
    return "unix:" + (SOCKET if rootful else rootless)


def _of_context() -> str:
    """Return the address of the docker client's current context, "" for the default one."""
    directory = os.environ.get("DOCKER_CONFIG") or os.environ.get("HOME", "") + "/.docker"
    if not os.access(directory + "/contexts/meta", os.X_OK):
        return ""
    import hashlib  # noqa: PLC0415 - they cost more than the rest, and most hosts have no context
    from pathlib import Path  # noqa: PLC0415

    try:
        named = json.loads(Path(directory, "config.json").read_bytes())["currentContext"]
        name = hashlib.sha256((os.environ.get("DOCKER_CONTEXT") or named).encode()).hexdigest()
        meta = json.loads(Path(directory, "contexts", "meta", name, "meta.json").read_bytes())
        return str(meta["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def connected(address: str, timeout_s: float) -> socket.socket:
    """Return a connection to "unix:/path" or "address:port"; OSError where nobody listens."""
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        target: Any = address[len("unix:") :]
    else:
        host, _, port = address.rpartition(":")
        connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        target = (host.strip("[]"), int(port))
    connection.settimeout(timeout_s)
    try:
        connection.connect(target)
    except BaseException:
        connection.close()
        raise
    return connection


def send(connection: socket.socket, method: str, path: str, body: bytes = b"", headers: tuple[str, ...] = ()) -> None:
    """Send a request after whose answer the server closes the connection."""
    head = (
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *headers,
    )
    connection.sendall("\r\n".join((*head, "", "")).encode() + body)


def received(connection: socket.socket, cap_bytes: int = 32 << 20) -> tuple[int, bytes]:
    """Return (status, body) once the server has closed the connection; ValueError where it does not speak HTTP."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < cap_bytes and (data := connection.recv(1 << 16)):
        parts.append(data)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError(f"no answer of HTTP: {head[:60]!r}")
    return int(words[1]), unchunked(body) if b"transfer-encoding: chunked" in head.lower() else body


def unchunked(body: bytes) -> bytes:
    """Return the bytes of a body sent in chunks: each a length in hexadecimal, the bytes and a line's end."""
    parts: list[bytes] = []
    at = 0
    while True:
        size, found, _ = body[at:].partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16) if found else 0
        if not length:
            return b"".join(parts)
        at += len(size) + 2
        parts.append(body[at : at + length])
        at += length + 2


def request(address: str, method: str, path: str, value: Any = None, timeout_s: float = TIMEOUT_S) -> tuple[int, bytes]:
    """Send JSON, where there is a value, and return (status, body); OSError or ValueError where no answer came."""
    body = b"" if value is None else json.dumps(value).encode()
    with connected(address, timeout_s) as connection:
        send(connection, method, path, body, ("Content-Type: application/json",) if body else ())
        return received(connection)


def get(address: str, path: str) -> Any:
    """Return what Docker answers, from JSON; ValueError with its message where it refuses."""
    status, body = request(address, "GET", path)
    if status != 200:
        raise ValueError(f"GET {path}: {status} {message(body)}")
    return json.loads(body)


def message(body: bytes) -> str:
    """Return the message in an error answer of Docker."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def why(error: Exception) -> str:
    """Say for people why there was no answer."""
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer in time"
    return str(getattr(error, "strerror", "") or error)
