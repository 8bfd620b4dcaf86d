"""Run nvidia-smi, unable to load a module or to make a device node, and print how it ended, as JSON.

{"path": "" where it is not installed, "skipped": reason or "", "exit": int or null, "stdout", "stderr",
 "hung": what it was doing when it did not end, or ""}. By its exit status it tells what NVML does not.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

_DEADLINE_S = 12.0  # without persistence it starts every GPU first, which takes a second or two each
_PLACES = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
_LOADED = ("/sys/module/nvidia", "/proc/driver/nvidia/version")
_NOT_LOADED = "the nvidia module is not loaded"
_NO_NEW_PRIVILEGES = 38  # prctl(2)
_CAPABILITIES_OF_64 = 0x20080522  # capset(2), version 3
_MODULES, _NODES = 1 << 16, 1 << 27  # CAP_SYS_MODULE, CAP_MKNOD


def answer(deadline_s: float = _DEADLINE_S) -> dict[str, object]:
    """Return how nvidia-smi ended."""
    path = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_PLACES))) or ""
    result: dict[str, object] = {"path": path, "skipped": "", "exit": None, "stdout": "", "stderr": "", "hung": ""}
    if not path:
        return {**result, "skipped": "nvidia-smi is not installed"}
    if not any(Path(proof).exists() for proof in _LOADED):
        return {**result, "skipped": _NOT_LOADED}
    only_look()
    child = subprocess.Popen(
        (path,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="backslashreplace",
    )
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        return {**result, "hung": _doing(child.pid)}  # whoever started us kills it with us, or leaves it behind
    return {**result, "exit": child.returncode, "stdout": out, "stderr": err}


def only_look() -> None:
    """Give up for good, setuid helpers included, what loads modules and makes device nodes: nvidia-smi does both."""
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    who, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_OF_64, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(who, sets) == 0:
        sets[:3] = [bits & ~(_MODULES | _NODES) for bits in sets[:3]]
        libc.capset(who, sets)


def _doing(pid: int) -> str:
    """Say in which state a process is and, where that may be read, in which function of the kernel."""
    task = Path("/proc") / str(pid)
    try:
        state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        function = (task / "wchan").read_text(encoding="utf-8").strip("0")
    except (OSError, IndexError):
        return f"process {pid}"
    where = f" in the kernel's {function}" if function else ""
    return f"process {pid} in {'uninterruptible sleep (D)' if state == 'D' else f'state {state}'}{where}"


if __name__ == "__main__":
    json.dump(answer(), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # not waiting for a child that cannot be killed
