"""Print the processes that stay in uninterruptible sleep, as a JSON list of {pid, name, function, stack}.

A short such sleep is ordinary input and output, so whoever is found in it is looked at again after a moment. function
is where in the kernel it sleeps and stack the whole way there, module names in brackets; "" where only root may know.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

_MOMENT_S = 0.5


def stuck(proc: Path, moment_s: float = _MOMENT_S) -> list[dict[str, object]]:
    """Return the tasks below a proc directory that sleep uninterruptibly now and a moment later."""
    first = [pid for pid in _pids(proc) if _state(proc / pid)[1] == "D"]
    if first:
        time.sleep(moment_s)
    still = [pid for pid in first if _state(proc / pid)[1] == "D"]
    return [
        {
            "pid": int(pid),
            "name": _state(proc / pid)[0],
            "function": _text(proc / pid / "wchan").strip("0"),
            "stack": _text(proc / pid / "stack").splitlines(),
        }
        for pid in still
    ]


def _pids(proc: Path) -> list[str]:
    return [path.name for path in proc.iterdir() if path.name.isdigit()]


def _state(task: Path) -> tuple[str, str]:
    """Return a task's name, which may itself hold blanks and brackets, and the letter of its state."""
    before, _, after = _text(task / "stat").rpartition(")")
    return before.partition("(")[2], after.split()[0] if after.split() else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:  # it ended in between, or is another user's
        return ""


if __name__ == "__main__":
    json.dump(stuck(Path("/proc")), sys.stdout)
