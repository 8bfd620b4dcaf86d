"""Run nvidia-smi, unable to load a module or to make a device node, and print how it ended, as JSON.

{"path": "" where it is not installed, "skipped": reason or "", "exit": int or null, "stdout", "stderr",
 "hung": what it was doing when it did not end, or ""}. By its exit status it tells what NVML does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lpxdoctor.child import state_of
from lpxdoctor.programs.nvml import give_up_loading

_DEADLINE_S = 12.0  # without persistence it starts every GPU first, which takes a second or two each
_PLACES = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
_LOADED = ("/sys/module/nvidia", "/proc/driver/nvidia/version")
_NOT_LOADED = "the nvidia module is not loaded"


def answer(deadline_s: float = _DEADLINE_S) -> dict[str, object]:
    """Return how nvidia-smi ended."""
    path = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_PLACES))) or ""
    result: dict[str, object] = {"path": path, "skipped": "", "exit": None, "stdout": "", "stderr": "", "hung": ""}
    if not path:
        return {**result, "skipped": "nvidia-smi is not installed"}
    if not any(Path(proof).exists() for proof in _LOADED):
        return {**result, "skipped": _NOT_LOADED}
    give_up_loading()
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
        return {**result, "hung": state_of(child.pid)[1]}  # whoever started us kills it with us, or leaves it behind
    return {**result, "exit": child.returncode, "stdout": out, "stderr": err}


if __name__ == "__main__":
    json.dump(answer(), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # not waiting for a child that cannot be killed
