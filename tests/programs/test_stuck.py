"""A process counts as stuck that sleeps uninterruptibly twice, never ran in between, and is no newcomer."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lpxdoctor.programs import stuck

TICKS = os.sysconf("SC_CLK_TCK")


def process(
    proc: Path, pid: int, state: str, *, started_s: float = 0, ran: int = 7, name: str = "python3 (a) b"
) -> None:
    task = proc / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    fields = [state, *["0"] * 18, str(int(started_s * TICKS))]
    (task / "stat").write_text(f"{pid} ({name}) {' '.join(fields)} 0 0\n")
    (task / "status").write_text(f"Name:\t{name}\nvoluntary_ctxt_switches:\t{ran}\nnonvoluntary_ctxt_switches:\t1\n")
    (task / "comm").write_text(name + "\n")
    (task / "wchan").write_text("os_acquire_rwlock_write")
    (task / "stack").write_text("[<0>] os_acquire_rwlock_write+0x3a/0x50 [nvidia]\n[<0>] do_syscall_64+0x5c/0x90\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "uptime").write_text("1000.00 2000.00\n")
    (tmp_path / "self").mkdir()
    return tmp_path


def test_a_stuck_process_is_told_with_where_it_waits(proc: Path) -> None:
    process(proc, 411, "D", started_s=100)
    process(proc, 412, "S")
    (one,) = stuck.stuck(proc, between_s=0)
    assert one == {
        "pid": 411,
        "name": "python3 (a) b",
        "function": "os_acquire_rwlock_write",
        "stack": ["[<0>] os_acquire_rwlock_write+0x3a/0x50 [nvidia]", "[<0>] do_syscall_64+0x5c/0x90"],
        "age_s": 900,
    }


def test_a_newcomer_is_not_judged(proc: Path) -> None:
    process(proc, 411, "D", started_s=995)
    assert stuck.stuck(proc, between_s=0) == []


def test_a_process_that_ran_in_between_is_busy(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(proc, 411, "D", ran=7)
    monkeypatch.setattr(time, "sleep", lambda _: process(proc, 411, "D", ran=8))
    assert stuck.stuck(proc) == []


def test_this_machine_is_asked_without_a_word_on_stderr() -> None:
    done = subprocess.run([sys.executable, stuck.__file__], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert isinstance(json.loads(done.stdout), list)
