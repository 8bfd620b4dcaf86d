#!/usr/bin/env python3
"""Make the probe image of this host's own Python and cuda.py, without any registry; print its name.

An image must hold an interpreter, and none can be pulled on a host that has no way out. So it gets the files that
this host's Python has open once it has imported what cuda.py imports, at the places where they are here: a few
megabytes. The image's tag is a hash of its contents: what is there already is not made again.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from lpxdoctor.programs import _docker

REPOSITORY = "lpxdoctor/probe"
PROGRAM = "/probe/cuda.py"
_CUDA = Path(__file__).resolve().with_name("cuda.py")

# Run by the interpreter that goes into the image: import what the program imports, load what the driver's libraries
# need of libc, and say which files that took. The names of dl_iterate_phdr are those that the loader looked for.
_TAKE_STOCK = """
import ast, ctypes, json, os, sys
for node in ast.walk(ast.parse(open(sys.argv[1], encoding="utf-8").read())):
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
        [node.module] if isinstance(node, ast.ImportFrom) else [])
    for name in names:
        __import__(name)
for library in ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
    try:
        ctypes.CDLL(library)
    except OSError:
        pass
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
objects = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def note(info, size, data):
    objects.append(os.fsdecode(info.contents.name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(note, None)
modules = [path for module in list(sys.modules.values())
           for path in (getattr(module, "__file__", None), getattr(module, "__cached__", None)) if path]
print(json.dumps({"executable": os.readlink("/proc/self/exe"),
                  "files": sorted({path for path in modules + objects if path.startswith("/")})}))
"""

# What container runtimes expect to find, mount into or write to, the NVIDIA hooks' ldconfig among them.
_DIRECTORIES = (
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/etc",
    "/etc/ld.so.conf.d",
    "/tmp",  # noqa: S108 - a place in the image
)
# libnvidia-container decides by it where a distribution keeps its libraries.
_DISTRIBUTION = ("/etc/debian_version", "/etc/os-release")


class Tree:
    """A root file system in the making: {path: (kind, mode, contents or target, mtime)}, parents before children."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[str, int, bytes, int]] = {}

    def add(self, path: str) -> None:
        """Take a path of this host: its directories, each link on the way with what it leads to, and the file."""
        walked = "/"
        for part in path.strip("/").split("/"):
            here = posixpath.join(walked, part)
            info = os.lstat(here)
            if stat.S_ISLNK(info.st_mode):
                target = str(Path(here).readlink())
                self.entries.setdefault(here, ("link", 0o777, os.fsencode(target), 0))
                here = posixpath.normpath(posixpath.join(walked, target))
                self.add(here)
            elif stat.S_ISDIR(info.st_mode):
                self.entries.setdefault(here, ("dir", 0o755, b"", 0))
            elif here not in self.entries:
                # Python compares a .pyc with the time of its source.
                self.entries[here] = ("file", stat.S_IMODE(info.st_mode), Path(here).read_bytes(), int(info.st_mtime))
            walked = here

    def put(self, path: str, contents: bytes) -> None:
        """Write a file of our own."""
        for parent in reversed(Path(path).parents[:-1]):
            self.entries.setdefault(str(parent), ("dir", 0o755, b"", 0))
        self.entries[path] = ("file", 0o644, contents, 0)

    def digest(self) -> str:
        """Return a hash of what matters: kinds, modes, places and contents."""
        total = hashlib.sha256()
        for path, (kind, mode, contents, _) in sorted(self.entries.items()):
            total.update(f"{kind} {mode:o} {path} {len(contents)}\n".encode())
            total.update(contents)
        return total.hexdigest()[:16]

    def tar(self) -> bytes:
        """Return it as a tar archive."""
        buffer = io.BytesIO()
        kinds = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "file": tarfile.REGTYPE}
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, (kind, mode, contents, mtime) in self.entries.items():
                member = tarfile.TarInfo(path.lstrip("/"))
                member.type, member.mode, member.mtime = kinds[kind], mode, mtime
                if kind == "link":
                    member.linkname = os.fsdecode(contents)
                member.size = len(contents) if kind == "file" else 0
                archive.addfile(member, io.BytesIO(contents) if kind == "file" else None)
        return buffer.getvalue()


def root(program: Path = _CUDA) -> tuple[Tree, str]:
    """Return (the image's root file system, the interpreter's path in it); OSError where this Python does not tell."""
    # Isolated and without site: what this environment adds to Python must not be looked for in the image.
    argv = (os.path.realpath(sys.executable), "-I", "-S", "-c", _TAKE_STOCK, str(program))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False, env={"LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        raise OSError(f"{argv[0]} could not import what {program.name} needs: {done.stderr.strip()[-300:]}")
    taken: dict[str, Any] = json.loads(done.stdout)
    tree = Tree()
    for path in (*_DIRECTORIES, *_DISTRIBUTION, taken["executable"], *taken["files"]):
        if Path(path).exists():
            tree.add(path)
    libraries = {posixpath.dirname(path) for path in taken["files"] if ".so" in posixpath.basename(path)}
    tree.put(
        "/etc/ld.so.conf",
        "".join(f"{line}\n" for line in ["include /etc/ld.so.conf.d/*.conf", *sorted(libraries)]).encode(),
    )
    tree.put(PROGRAM, program.read_bytes())
    return tree, taken["executable"]


def ensure(address: str, program: Path = _CUDA) -> tuple[str, str, bool]:
    """Return (the image's name, its interpreter, whether it had to be made); OSError or ValueError where it cannot."""
    tree, interpreter = root(program)
    tag = tree.digest()
    name = f"{REPOSITORY}:{tag}"
    if _docker.request(address, "GET", f"/images/{name}/json")[0] == 200:
        return name, interpreter, False
    with _docker.connected(address, timeout_s=20) as connection:
        path = f"/images/create?fromSrc=-&repo={REPOSITORY}&tag={tag}"
        _docker.send(connection, "POST", path, tree.tar(), ("Content-Type: application/x-tar",))
        status, body = _docker.received(connection)
    failed = [line for line in body.decode("utf-8", "replace").splitlines() if '"error"' in line]
    if status != 200 or failed:
        raise ValueError(
            f"docker import of the probe image: {status} {failed[-1] if failed else _docker.message(body)}"
        )
    _remove_older(address, name)
    return name, interpreter, True


def _remove_older(address: str, name: str) -> None:
    """Delete the images of other contents: a Python that was upgraded leaves one behind. One in use stays."""
    wanted = json.dumps({"reference": [f"{REPOSITORY}:*"]})
    for image in _docker.get(address, f"/images/json?filters={_quoted(wanted)}"):
        for tag in image.get("RepoTags") or []:
            if tag != name:
                _docker.request(address, "DELETE", f"/images/{tag}")


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else f"%{ord(char):02X}" for char in text)


if __name__ == "__main__":
    print(ensure(_docker.server())[0])
