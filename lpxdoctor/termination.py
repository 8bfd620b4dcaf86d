"""Ending an Ansible run: Ctrl-C, SIGTERM or a time limit in, its processes here and on the hosts gone."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal

# Seconds that ansible-playbook gets to end its workers, here and on the hosts, before all are killed.
GRACE_S = 15.0


class Stop:
    """A request to end a run, and how far it has come."""

    def __init__(self, limit_s: float | None) -> None:
        self.asked = threading.Event()
        self.reason: Literal["signal", "limit"] | None = None
        self._deadline = None if limit_s is None else time.monotonic() + limit_s
        self._at_once = False
        self._terminated_at: float | None = None
        self._below: dict[int, str] = {}  # processes of the run -> their start time, which tells a reused id

    def on_signal(self, signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        """Ask for the end; the second time, for the end at once."""
        self._at_once = self.asked.is_set()
        self.reason = "signal"
        self.asked.set()

    def watch(self) -> None:
        """Ask for the end when the limit has passed."""
        if self._deadline is not None and time.monotonic() > self._deadline and not self.asked.is_set():
            self.reason = "limit"
            self.asked.set()

    def end(self, process: int) -> None:
        """End ansible-playbook; called again and again until it is gone.

        SIGTERM first: it then ends its workers and the SSH sessions, whose terminals end what runs on the hosts.
        SIGKILL, which is all that ansible-runner knows, leaves the workers in their own sessions running.
        """
        self._below |= descendants(process)
        if self._terminated_at is None:
            self._terminated_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(process), signal.SIGTERM)
        elif self._is_over():
            self._kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def sweep(self) -> None:
        """After the end of ansible-playbook, wait for what it had started here and kill what does not go."""
        while self._terminated_at is not None and self._living():
            if self._is_over():
                self._kill()
                return
            time.sleep(0.1)

    def _is_over(self) -> bool:
        return self._at_once or (self._terminated_at is not None and time.monotonic() - self._terminated_at > GRACE_S)

    def _living(self) -> list[int]:
        return [process for process, started in self._below.items() if _stat(process)[1:] == [started]]

    def _kill(self) -> None:
        for process in self._living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextmanager
def stoppable(limit_s: float | None) -> Generator[Stop]:
    """Yield a request that Ctrl-C, SIGTERM and the limit make; the former signal handlers are restored."""
    stop = Stop(limit_s)
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    former = {number: signal.signal(number, stop.on_signal) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def descendants(process: int) -> dict[int, str]:
    """Return all processes below one with their start times; a session of its own hides none of them."""
    stats = {int(entry.name): _stat(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    found: dict[int, str] = {}
    level = {process}
    while level:
        level = {child for child, stat in stats.items() if stat and int(stat[0]) in level}
        found |= {child: stats[child][1] for child in level}
    return found


def _stat(process: int) -> list[str]:
    """Return parent and start time of a process, nothing when it has ended."""
    try:
        # The command's name stands in parentheses and may contain anything; proc(5) numbers the fields.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else [fields[1], fields[19]]
