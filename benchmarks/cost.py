"""A command in, what it took out: time, CPU and memory of all its processes together."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from truth import ROOT, stats

_LIMIT_S = 300


def cost(argv: Sequence[str], url: str) -> dict[str, Any]:
    """Run a command and return what it took, and what the truth server did meanwhile."""
    stats(url)
    # aiperf takes a directory for a name on the hub when it is told to stay offline; nothing is reachable anyway.
    environment = os.environ if "aiperf" in argv[0] else {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as said:
        started = time.time()
        process = subprocess.Popen(argv, cwd=ROOT, stdout=said, stderr=said, env=environment, start_new_session=True)
        with _peak_of(process.pid) as peak, _killed_after(process, _LIMIT_S):
            _, status, usage = os.wait4(process.pid, 0)
        ended = time.time()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            said.seek(0)
            text = said.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{argv[0]} ended with {process.returncode}:\n{text}")
    did = stats(url)
    cpu_s = usage.ru_utime + usage.ru_stime
    return {
        "truth": did,
        "wall_s": ended - started,
        "first_request_s": did["first_req_real"] - started,
        "peak_mb": peak[0],
        "cpu_s": cpu_s,
        "us_per_event": cpu_s * 1e6 / did["chunks"],
    }


@contextmanager
def _peak_of(leader: int) -> Generator[list[float]]:
    """Yield the largest memory of a session's processes so far, shared pages shared out (PSS), in MB."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            peak[0] = max(peak[0], sum(_pss_mb(pid) for pid in _processes_of(leader)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


@contextmanager
def _killed_after(process: "subprocess.Popen[bytes]", limit_s: float) -> Generator[None]:
    """End a process that takes too long."""
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _processes_of(session: int) -> list[int]:
    """Return the processes of a session, or of one started by it: some clients' workers lead their own."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1]), int(fields[3])
    found = {pid for pid, (_, its_session) in parents.items() if its_session == session}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def _pss_mb(pid: int) -> float:
    """Return a process's proportional share of memory."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1000
    return 0.0
