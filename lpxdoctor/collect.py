"""Ask this host the probes, in parallel and each with its own deadline, and return the evidence.

The only module that starts something on the inspected host. Standard library alone and Python 3.9 syntax: it is
sent there, with child.py, evidence.py and reading.py.

A child in uninterruptible sleep cannot be killed, and subprocess.run(timeout=) then waits for it for ever. So every
probe is asked by a child process in a session of its own; at its deadline the child is killed, given a moment to go,
and left behind when it does not. Files are read by a child too, since reading one can hang just as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable

from lpxdoctor.child import start_command, start_function, start_program, state_of
from lpxdoctor.evidence import Answer, Command, Evidence, File, Glob, Http, Listing, Probe, Program
from lpxdoctor.reading import CAP_BYTES, mask, read_probe, refused

LIMIT_S = 30.0
_AT_ONCE = 16
_GRACE_S = 0.3  # a killed child that is not in uninterruptible sleep is gone within this
_BUSY_S = 5.0  # or within this, where it waits for its turn on a busy machine
_TICK_S = 0.02


def collect(
    probes: Iterable[Probe],
    programs: Mapping[str, Path],
    *,
    limit_s: float = LIMIT_S,
    on_answer: Callable[[str, int, int], None] | None = None,
    meanwhile: Callable[[], None] | None = None,
    collector: str = "",
) -> Evidence:
    """Ask every probe and return what came back, after limit_s seconds at the latest.

    Args:
        probes: what to ask; asking the same thing twice is asking once.
        programs: where a Program of each name lies.
        limit_s: seconds after which whatever did not answer is recorded as a time-out.
        on_answer: called with (key, answers so far, probes) at each answer.
        meanwhile: called once while the first probes are at work: what is needed later and costs a moment.
        collector: recorded as who asked.
    """
    unique = list({probe.key: probe for probe in probes}.values())
    run = _Run(unique, programs, limit_s, on_answer)
    try:
        run.start()
        if meanwhile:
            meanwhile()
        answers = run.finish()
    finally:
        run.kill_all()
    return Evidence(
        host=platform.node(),
        answers={key: mask(answer) for key, answer in answers.items()},
        collected_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        collector=collector,
        uid=os.getuid(),
    )


@dataclass
class _Job:
    """A child process and the probes that it answers, in order: one, or for a reader of files many."""

    probes: Sequence[Probe]
    pid: int
    pipes: Mapping[int, bytearray]  # fd -> what was read from it; the first is standard output
    asked_at: float
    reader: bool
    killed_at: float = 0.0
    open_fds: set[int] = field(default_factory=set)
    status: int | None = None  # wait status, once it ended

    @property
    def out(self) -> bytearray:
        return next(iter(self.pipes.values()))


class _Run:
    """One round of asking: children are started, watched until their deadlines, and their answers kept."""

    def __init__(
        self,
        probes: Sequence[Probe],
        programs: Mapping[str, Path],
        limit_s: float,
        on_answer: Callable[[str, int, int], None] | None,
    ) -> None:
        self._of = len(probes)
        self._programs = programs
        self._end = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._on_answer = on_answer
        self._selector = selectors.DefaultSelector()
        self._jobs: list[_Job] = []
        self._answers: dict[str, Answer] = {}
        self._files = [probe for probe in probes if isinstance(probe, (File, Glob, Listing))]
        # The longest is taken first, from the end: what is started last decides when all is done.
        others = [probe for probe in probes if isinstance(probe, (Command, Http, Program))]
        self._queue = sorted(others, key=lambda probe: probe.timeout_s)

    def start(self) -> None:
        """Ask as many as may be asked at once."""
        if self._files:
            self._start_reader(self._files)
        self._ask_more()

    def finish(self) -> dict[str, Answer]:
        """Ask until everything is answered or the limit is reached."""
        while (self._jobs or self._queue) and time.monotonic() < self._end:
            self._ask_more()
            for key, _ in self._selector.select(_TICK_S):
                self._read(key.data, key.fd)
            now = time.monotonic()
            for job in list(self._jobs):
                self._look_after(job, now)
        late = f"no answer within the {self._limit_s:g} s of the whole run"
        for probe in [*(probe for job in self._jobs for probe in job.probes), *self._queue]:
            self._keep(probe, Answer(failure="timeout", reason=late))
        return self._answers

    def _ask_more(self) -> None:
        while self._queue and len(self._jobs) < _AT_ONCE:
            self._start(self._queue.pop())

    def kill_all(self) -> None:
        """End what still runs, without waiting for what cannot be killed."""
        for job in list(self._jobs):
            _kill(job.pid)
            self._drop(job)
        self._selector.close()

    def _keep(self, probe: Probe, answer: Answer) -> None:
        if probe.key not in self._answers:
            self._answers[probe.key] = answer
            if self._on_answer:
                self._on_answer(probe.key, len(self._answers), self._of)

    def _start(self, probe: Command | Http | Program) -> None:
        """Start the child that answers one probe, or keep the reason why it cannot be started."""
        if isinstance(probe, Http):
            self._start_reader([probe])
            return
        path = self._programs.get(probe.name) if isinstance(probe, Program) else None
        if isinstance(probe, Program) and path is None:
            self._keep(probe, Answer(failure="absent", reason=f"no program {probe.name} was sent along"))
            return
        try:
            pid, fds = start_program(path, probe.argv) if path else start_command(probe.argv)
        except OSError as error:
            self._keep(probe, refused(error, str(path or probe.argv[0])))
            return
        self._watch(_Job([probe], pid, {fd: bytearray() for fd in fds}, time.monotonic(), reader=False))

    def _start_reader(self, probes: Sequence[Probe]) -> None:
        pid, fds = start_function(lambda: _answer_all(probes))
        self._watch(_Job(probes, pid, {fd: bytearray() for fd in fds}, time.monotonic(), reader=True))

    def _watch(self, job: _Job) -> None:
        for fd in job.pipes:
            os.set_blocking(fd, False)
            job.open_fds.add(fd)
            self._selector.register(fd, selectors.EVENT_READ, job)
        self._jobs.append(job)

    def _read(self, job: _Job, fd: int) -> None:
        """Take what a child has written so far; a reader's complete lines become answers at once."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._close(job, fd)
        elif job.reader or len(job.pipes[fd]) < CAP_BYTES:  # a reader has capped what it read
            job.pipes[fd].extend(data)
        if job.reader and b"\n" in data:
            *lines, job.out[:] = bytes(job.out).split(b"\n")
            for line in lines:
                self._keep(job.probes[0], Answer(**json.loads(line)))
                job.probes = job.probes[1:]
                job.asked_at = time.monotonic()

    def _look_after(self, job: _Job, now: float) -> None:
        """Finish a job whose child ended, and kill or leave behind one that is past its deadline."""
        if job.status is None:
            pid, status = os.waitpid(job.pid, os.WNOHANG)
            job.status = status if pid else None
        if job.status is not None and (not job.open_fds or job.killed_at or self._drained(job)):
            self._finish(job, now)
        elif job.killed_at and now > job.killed_at + _GRACE_S:
            state, left = state_of(job.pid)
            if state == "D" or now > job.killed_at + _BUSY_S:
                self._finish(job, now, left=left)
        elif not job.killed_at and job.probes and now > job.asked_at + job.probes[0].timeout_s:
            job.killed_at = now
            _kill(job.pid)

    def _drained(self, job: _Job) -> bool:
        """Read the rest after a child ended; a grandchild that holds its pipe open is not waited for."""
        for fd in list(job.open_fds):
            self._read(job, fd)
        return True

    def _finish(self, job: _Job, now: float, left: str = "") -> None:
        self._drop(job)
        if not job.probes:
            return
        probe, rest = job.probes[0], job.probes[1:]
        seconds = round(now - job.asked_at, 3)
        if job.killed_at:
            reason = f"no answer within {probe.timeout_s:g} s" + (f"; it cannot be killed: {left}" if left else "")
            self._keep(probe, Answer(failure="timeout", reason=reason, seconds=seconds))
        elif job.reader:
            self._keep(probe, Answer(failure="failed", reason=f"the reader ended with {_ended(job.status)}"))
        else:
            self._keep(probe, _answer_of(probe, job, seconds))
        if rest:  # one file that hangs takes only itself: another reader goes on behind it
            self._start_reader(rest)

    def _close(self, job: _Job, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        job.open_fds.discard(fd)

    def _drop(self, job: _Job) -> None:
        for fd in list(job.open_fds):
            self._close(job, fd)
        self._jobs.remove(job)


def _answer_all(probes: Sequence[Probe]) -> None:
    """Answer probes of files and servers in a child, one JSON line each."""
    for probe in probes:
        started = time.monotonic()
        answer = replace(read_probe(probe), seconds=round(time.monotonic() - started, 3))
        sys.stdout.write(json.dumps(vars(answer)) + "\n")
        sys.stdout.flush()


def _answer_of(probe: Probe, job: _Job, seconds: float) -> Answer:
    """Return the answer of a command or program that ended."""
    out, err = (bytes(pipe).decode("utf-8", "backslashreplace") for pipe in job.pipes.values())
    if isinstance(probe, Command):
        code = os.waitstatus_to_exitcode(job.status or 0)
        return Answer({"exit": code, "stdout": out, "stderr": err}, seconds=seconds)
    try:
        return Answer(json.loads(out), seconds=seconds)
    except ValueError:
        said = (err or out).strip().splitlines()
        reason = f"{_ended(job.status)}, no JSON printed" + (f": {said[-1]}" if said else "")
        return Answer(failure="failed", reason=reason, seconds=seconds)


def _ended(status: int | None) -> str:
    code = os.waitstatus_to_exitcode(status or 0)
    return f"exit {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
