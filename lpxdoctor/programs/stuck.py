"""Print the processes that stay in uninterruptible sleep, as a JSON list of {pid, name, function, stack, age_s}.

Short such sleeps are ordinary, and starting a GPU consists of many. So only a process counts that sleeps so twice, did
not run once in between, and was not started just now. function is where in the kernel it sleeps and stack the whole
way there, module names in brackets; both are empty where only root may know.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

_BETWEEN_S = 1.0
_YOUNG_S = 10.0
_RAN = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)


def stuck(proc: Path, between_s: float = _BETWEEN_S, young_s: float = _YOUNG_S) -> list[dict[str, object]]:
    """Return the processes below a proc directory that sleep uninterruptibly, and did nothing else for between_s."""
    asleep = {
        task: ran for task in proc.iterdir() if task.name.isdigit() and (ran := _asleep(task, young_s)) is not None
    }
    if asleep:
        time.sleep(between_s)
    return [
        {
            "pid": int(task.name),
            "name": _text(task / "comm").strip(),
            "function": _text(task / "wchan").strip("0"),
            "stack": _text(task / "stack").splitlines(),
            "age_s": round(_age_s(task)),
        }
        for task, ran in asleep.items()
        if _asleep(task, young_s) == ran
    ]


def _asleep(task: Path, young_s: float) -> int | None:
    """Return how often a process was put on and taken off a CPU, None where it does not sleep so or is young."""
    state = _text(task / "stat").rpartition(")")[2].split()
    if not state or state[0] != "D" or _age_s(task) < young_s:
        return None
    return sum(map(int, _RAN.findall(_text(task / "status"))))


def _age_s(task: Path) -> float:
    started = _text(task / "stat").rpartition(")")[2].split()[19:20]
    uptime = _text(task.parent / "uptime").split()[:1]
    return float(uptime[0]) - int(started[0]) / os.sysconf("SC_CLK_TCK") if started and uptime else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:  # it ended in between, or is another user's
        return ""


if __name__ == "__main__":
    json.dump(stuck(Path("/proc")), sys.stdout)
