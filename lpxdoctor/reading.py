"""Answer the probes of files and of servers on this host, and mask the secrets in any answer.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import socket
import stat
from dataclasses import replace
from typing import Any

from lpxdoctor.evidence import Answer, File, Glob, Http, Listing, Probe

CAP_BYTES = 8 << 20  # what is longer is cut: a kernel log of weeks is not read in full

# Masked before anything leaves the host: what stands behind a name that says it is a secret, behind such an option,
# and tokens that are known by their form. modinfo's sig_key and the kernel's "key was rejected" are none and stay.
# Each pattern is tried only on text that has one of the words before it, in lower case: a kernel log has none of them.
_OWNERS = ("api", "access", "private", "secret", "auth")
_KEYS = tuple(f"{owner}{joint}key" for owner in _OWNERS for joint in ("", "_", "-"))
_SECRETS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        (*_KEYS, "token", "secret", "passw"),
        re.compile(
            r"((?:(?:api|access|private|secret|auth)[_-]?key|token|secret|passw(?:or)?d)[\"']?\s*[=:]\s*\[?[\"']?)([^\s\"',;\\\]]+)",
            re.IGNORECASE,
        ),
    ),
    (
        ("key", "token", "secret", "password"),
        re.compile(r"(--[\w-]*(?:key|token|secret|password)[ =])([^\s\"',]+)", re.IGNORECASE),
    ),
    (("bearer ",), re.compile(r"(\bBearer )([^\s\"',]+)", re.IGNORECASE)),
    (("hf_",), re.compile(r"\b(hf_)([A-Za-z0-9]{16,})")),
    (("://",), re.compile(r"(://[^/\s:@]+:)([^/\s@]+)(?=@)")),  # of a proxy
)


def read_probe(probe: Probe) -> Answer:
    """Answer a probe of files or of a server, in the reader's process."""
    try:
        if isinstance(probe, File):
            return Answer(_text(probe.path))
        if isinstance(probe, Glob):
            return Answer({path: _text_or_none(path) for path in sorted(glob.glob(probe.pattern))})
        if isinstance(probe, Listing):
            return Answer({path: entry(path) for path in sorted(glob.glob(probe.pattern))})
        assert isinstance(probe, Http)
        return Answer(_get(probe.server, probe.path, probe.timeout_s))
    except OSError as error:
        return refused(error, probe.key.partition(":")[2])
    except ValueError as error:
        return Answer(failure="failed", reason=str(error))


def _text(path: str) -> str:
    data = bytearray()
    with open(path, "rb") as file:
        # In pieces: the kernel refuses to read 4 MiB and more of /proc/sys at once, with ENOMEM.
        while len(data) < CAP_BYTES and (part := file.read(1 << 16)):
            data += part
    return data[:CAP_BYTES].decode("utf-8", "backslashreplace")


def _text_or_none(path: str) -> str | None:
    try:
        return _text(path)
    except OSError:
        return None


def entry(path: str) -> dict[str, Any]:
    """Return what a directory says of a path, without following a link.

    kind is file, dir, link, char or other; mode the permission bits; major and minor of a device, else 0;
    size in bytes; mtime in seconds; target of a link, else ""; readable and writable by whoever asks.
    """
    info = os.lstat(path)
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "dir",
        stat.S_IFLNK: "link",
        stat.S_IFCHR: "char",
        stat.S_IFBLK: "block",
    }
    kind = kinds.get(stat.S_IFMT(info.st_mode), "other")
    return {
        "kind": kind,
        "mode": stat.S_IMODE(info.st_mode),
        "uid": info.st_uid,
        "gid": info.st_gid,
        "major": os.major(info.st_rdev),
        "minor": os.minor(info.st_rdev),
        "size": info.st_size,
        "mtime": int(info.st_mtime),
        "target": os.readlink(path) if kind == "link" else "",
        "readable": os.access(path, os.R_OK),
        "writable": os.access(path, os.W_OK),
    }


def _get(server: str, path: str, timeout_s: float) -> dict[str, Any]:
    """GET over HTTP/1.0, which no server answers in chunks; an HTTP library would cost more than the question."""
    if server.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        address: Any = server[len("unix:") :]
    else:
        connection = socket.socket()
        host, _, port = server.rpartition(":")
        address = (host, int(port))
    with connection:
        connection.settimeout(timeout_s)
        connection.connect(address)
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode())
        parts: list[bytes] = []
        while sum(len(part) for part in parts) < CAP_BYTES and (data := connection.recv(1 << 16)):
            parts.append(data)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    status = head.split(b" ", 2)
    if len(status) < 2 or not status[1].isdigit():
        raise ValueError(f"{server} does not speak HTTP: {head[:60]!r}")
    return {"status": int(status[1]), "body": body.decode("utf-8", "backslashreplace")}


def refused(error: OSError, what: str) -> Answer:
    """Say why something could not be opened, started or reached."""
    absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.ECONNREFUSED)
    denied = error.errno in (errno.EACCES, errno.EPERM)
    failure = "absent" if absent else "denied" if denied else "failed"
    return Answer(failure=failure, reason=f"{what}: {error.strerror or error}")


def mask(answer: Answer) -> Answer:
    """Return an answer with every secret in its texts replaced by ***."""
    return replace(answer, value=_mask(answer.value), reason=_mask(answer.reason))


def _mask(value: Any) -> Any:
    """Return a value with every secret in its texts replaced by ***."""
    if isinstance(value, str):
        lower = value.lower()
        for words, pattern in _SECRETS:
            if any(word in lower for word in words):
                value = pattern.sub(r"\1***", value)
        return value
    if isinstance(value, dict):
        return {key: _mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(item) for item in value]
    return value
