"""Print where the dynamic loader finds the driver's libraries, as JSON.

{"ld_library_path": value in this environment,
 "cache": {soname: [path in the loader's order]} or null, "cache_reason",
 "files": {path: real path} of every such file in the loader's cache, LD_LIBRARY_PATH and the usual directories}
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

_WANTED = re.compile(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so(?:\.[\d.]+)?")
_CACHED = re.compile(r"\s*(lib\S+) \(([^)]*)\) => (\S+)")
_USUAL = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib/*-linux-gnu/nvidia/*",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",  # Google's and other clouds' driver containers
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda*/compat",
    "/usr/local/cuda*/lib64/stubs",
)


def cache() -> tuple[dict[str, list[str]] | None, str]:
    """Return what ldconfig's cache has of the driver's libraries of this machine's word size, or why it is unknown."""
    try:
        done = subprocess.run(
            ("ldconfig", "-p"), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        return None, f"ldconfig: {error.strerror}"
    if done.returncode != 0:
        return None, f"ldconfig -p: {done.stderr.strip() or f'exit {done.returncode}'}"
    found: dict[str, list[str]] = {}
    for match in map(_CACHED.match, done.stdout.splitlines()):
        # "libc6,x86-64" and "libc6,AArch64" against "libc6": the 32-bit libraries name no architecture.
        if match and _WANTED.fullmatch(match[1]) and ("64" in match[2] or sys.maxsize < 2**32):
            found.setdefault(match[1], []).append(match[3])
    return found, ""


def files(directories: list[str]) -> dict[str, str]:
    """Return {path: real path} of the driver's libraries in directories, patterns below the root allowed."""
    places = (place for pattern in directories for place in Path("/").glob(pattern.strip("/")))
    names = (path for place in places for path in place.glob("lib[cn]*.so*") if _WANTED.fullmatch(path.name))
    return {str(path): os.path.realpath(path) for path in sorted(names)}


def answer() -> dict[str, object]:
    """Return everything."""
    searched = os.environ.get("LD_LIBRARY_PATH", "")
    cached, reason = cache()
    places = {str(Path(path).parent) for paths in (cached or {}).values() for path in paths}
    directories = [
        *sorted(places),
        *(place for place in searched.split(":") if place.startswith("/") and place.strip("/")),
        *_USUAL,
    ]
    return {
        "ld_library_path": searched,
        "cache": cached,
        "cache_reason": reason,
        "files": files(list(dict.fromkeys(directories))),
    }


if __name__ == "__main__":
    json.dump(answer(), sys.stdout)
