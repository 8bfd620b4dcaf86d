"""Print which GPU modules each installed kernel has, what the NVIDIA ones say, and what modprobe and DKMS hold of them.

{"running": release,
 "kernels": [{"release", "headers", "modules": [path below its tree] or null, "builtin": [...]}], newest first,
 "modinfo": {release: {path: [line]} or reason} of the running and the newest kernel,
 "showconfig": [line] or null, "showconfig_reason",
 "dkms": [{"name", "version", "built": [release], "log": [line]}], the log only of a build that failed}
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lpxdoctor.programs._kernels import natural

_GPU_MODULE = re.compile(r"(?:^|/)(?:nvidia[\w-]*|nouveau|nova[_-]core)\.ko(?:\.\w+)?$")
_MAIN_MODULE = re.compile(r"(?:^|/)nvidia(?:-current|-tesla|-legacy)?(?:-open|-\d\w*)*\.ko(?:\.\w+)?$")
# Ubuntu's server branch is nvidia-srv; nvidia-fs and the like are other modules with versions of their own.
_DKMS = re.compile(r"nvidia(?:-(?:srv|open|current|tesla|legacy)[\w.-]*)?")
_MODINFO = re.compile(r"(?:filename|version|license|vermagic|signer|sig_key|sig_hashalgo|sig_id):")
_SETTING = re.compile(r"(?:blacklist|install|remove|options|softdep) ")
_INDEXES = "# End of configuration files."
_LOG_LINES = 60


def kernels(tree: Path) -> list[dict[str, Any]]:
    """Return the kernels below /lib/modules, newest first."""
    found = [path for path in tree.iterdir() if path.is_dir()] if tree.is_dir() else []
    return [
        {
            "release": path.name,
            "headers": (path / "build" / "Makefile").exists(),
            "modules": _gpu_modules(path / "modules.dep"),
            "builtin": _gpu_modules(path / "modules.builtin") or [],
        }
        for path in sorted(found, key=lambda path: natural(path.name), reverse=True)
    ]


def _gpu_modules(path: Path) -> list[str] | None:
    """Return the GPU modules that modprobe finds by an index, as paths below the kernel's tree."""
    try:
        lines = path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
    except OSError:
        return None
    names = (line.partition(":")[0] for line in lines)
    return [name for name in names if _GPU_MODULE.search(name)]


def modinfo(tree: Path, kernel: dict[str, Any]) -> Any:
    """Return {path: lines} of a kernel's main NVIDIA modules, or the reason why they could not be read."""
    found: dict[str, list[str]] = {}
    for module in kernel["modules"] or []:
        if not _MAIN_MODULE.search(module):
            continue
        path = str(tree / kernel["release"] / module)
        try:
            done = _run("modinfo", path)
        except OSError as error:
            return f"modinfo: {error.strerror}"
        if done.returncode != 0:
            return f"modinfo {path}: {done.stderr.strip() or f'exit {done.returncode}'}"
        found[path] = [line for line in done.stdout.splitlines() if _MODINFO.match(line)]
    return found


def showconfig() -> tuple[list[str] | None, str]:
    """Return modprobe's own view of its settings, cut before the megabytes of aliases that it prints behind them."""
    try:
        done = _run("modprobe", "--showconfig")
    except OSError as error:
        return None, f"modprobe: {error.strerror}"
    if done.returncode != 0:
        return None, f"modprobe --showconfig: {done.stderr.strip() or f'exit {done.returncode}'}"
    settings = done.stdout.partition(_INDEXES)[0].splitlines()
    return [line for line in settings if _SETTING.match(line)], ""


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace", check=False
    )


def dkms(tree: Path) -> list[dict[str, Any]]:
    """Return what DKMS keeps of NVIDIA's module: for which kernels each version is built, and a failed build's log."""
    sources = (path for path in tree.glob("nvidia*/*") if _DKMS.fullmatch(path.parent.name))
    versions = [path for path in sources if path.is_dir() and (path / "source").exists()]
    return [
        {
            "name": path.parent.name,
            "version": path.name,
            "built": sorted(module.parent.parent.name for module in path.glob("*/*/module")),
            "log": _tail(path / "build" / "make.log"),
        }
        for path in sorted(versions)
    ]


def _tail(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
    except OSError:
        return []
    # The head names the kernel and the compilers, the tail the error.
    return lines if len(lines) <= 2 * _LOG_LINES else [*lines[:_LOG_LINES], "...", *lines[-_LOG_LINES:]]


def answer(root: Path) -> dict[str, Any]:
    """Return everything, read below root."""
    running = os.uname().release
    tree = root / "lib/modules"
    all_kernels = kernels(tree)
    looked_at = {running, *(kernel["release"] for kernel in all_kernels[:1])}
    settings, reason = showconfig()
    return {
        "running": running,
        "kernels": all_kernels,
        "modinfo": {
            kernel["release"]: modinfo(tree, kernel) for kernel in all_kernels if kernel["release"] in looked_at
        },
        "showconfig": settings,
        "showconfig_reason": reason,
        "dkms": dkms(root / "var/lib/dkms"),
    }


if __name__ == "__main__":
    json.dump(answer(Path(sys.argv[1] if len(sys.argv) > 1 else "/")), sys.stdout)
