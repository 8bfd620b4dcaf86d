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
        if self._terminated_at is None:
            self._terminated_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(process), signal.SIGTERM)
        elif self._at_once or time.monotonic() - self._terminated_at > GRACE_S:
            for one in (*_descendants(process), process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


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


def _descendants(process: int) -> list[int]:
    """Return all processes below one; a session of its own hides none of them."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command's name stands in parentheses and may contain anything.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    level = [process]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found
