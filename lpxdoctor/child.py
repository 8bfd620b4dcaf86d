"""Start the children that answer probes, and tell what one does: a command or function in, its pid and pipes out.

Standard library alone and Python 3.9 syntax: it is sent to managed hosts. Each child has a session of its own.

A program, a Python file of ours, runs in a fork of the collector: starting an interpreter for each would cost more than
most of what they read. So that it can tell no difference, the fork sheds what an interpreter of its own would not have:
open files, signal handlers, output not yet written, the caller's sys.path; and nothing of the collector's clean-up runs
in it. A collector must have no threads, whose locks a fork would find held for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib.util
import locale
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # an ordinary user's PATH often lacks them
_PACKAGE = str(Path(__file__).resolve().parents[1])  # what our programs import lpxdoctor from, also where it was sent
_FLUSH_FAILED = 120  # the status with which Python itself ends then


def start_command(argv: Sequence[str]) -> tuple[int, list[int]]:
    """Start a command; return its pid and what to read its standard output and error from. Raises OSError."""
    pairs = [os.pipe(), os.pipe()]
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, write, fd) for (_, write), fd in zip(pairs, (1, 2))]
    try:
        pid = os.posix_spawnp(argv[0], list(argv), _environment(), file_actions=actions, setsid=True)
    except OSError:
        for read, _ in pairs:
            os.close(read)
        raise
    finally:
        for _, write in pairs:
            os.close(write)
    return pid, [read for read, _ in pairs]


def start_program(path: Path, argv: Sequence[str]) -> tuple[int, list[int]]:
    """Start a Python file as `python FILE ARGV...` would, importing lpxdoctor as we do; return as start_command."""
    return start_function(lambda: _run(path, argv))


def start_function(work: Callable[[], None]) -> tuple[int, list[int]]:
    """Start a fork that calls a function and ends; return as start_command. Raises OSError where none can be made."""
    pairs = [os.pipe(), os.pipe()]
    pid = os.fork()
    if not pid:
        status = 1
        try:  # nothing may return into the collector's frames
            _parents_streams = _shed([write for _, write in pairs])
            status = _status_of(work)
        finally:
            os._exit(status)
    for _, write in pairs:
        os.close(write)
    return pid, [read for read, _ in pairs]


def state_of(pid: int) -> tuple[str, str]:
    """Return what a process that does not end is doing: proc(5)'s letter, and words with the kernel's function.

    The letter is "" where the process may not be looked at, the function is left out where it may not.
    """
    task = Path("/proc") / str(pid)
    try:
        state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        function = (task / "wchan").read_text(encoding="utf-8").strip("0")
    except (OSError, IndexError):
        return "", f"process {pid}"
    where = f" in the kernel's {function}" if function else ""
    return state, f"process {pid} in {'uninterruptible sleep (D)' if state == 'D' else f'state {state}'}{where}"


def _environment() -> dict[str, str]:
    """Return the environment of a child: a language that parsers know, and the administrator's tools on PATH."""
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":" + _SBIN
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PATH": path}
    environment.pop("LANGUAGE", None)  # it would beat LC_ALL
    return environment


def _shed(outputs: Sequence[int]) -> tuple[object, ...]:
    """Leave the parent's session, handlers and files; return its streams, which are written out when they are freed."""
    gc.freeze()  # nothing of the parent's is freed: its end could flush, or close a file number that has a new owner
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    sources = [os.open(os.devnull, os.O_RDONLY), *outputs]
    # Behind the three first: a parent that was started without standard streams has pipes there.
    for fd, source in enumerate([fcntl.fcntl(source, fcntl.F_DUPFD, 3) for source in sources]):
        os.dup2(source, fd)
    for fd in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if fd > 2:
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                os.close(fd)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    return streams


def _status_of(work: Callable[[], None]) -> int:
    """Do the work; return the status that an interpreter would end with, and say on standard error what it would."""
    status = 0
    try:
        work()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    except BaseException as error:  # noqa: BLE001 - as an interpreter does at its end; the parent reads what it said
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    try:
        sys.stdout.flush()
    except OSError:
        return _FLUSH_FAILED
    return status & 0xFF


def _run(path: Path, argv: Sequence[str]) -> None:
    """Run a Python file as the main module."""
    callers = {*sys.path[:1], *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    sys.path[:] = [str(path.parent), _PACKAGE, *(entry for entry in sys.path if entry not in callers)]
    os.environ.update(_environment(), PYTHONPATH=_PACKAGE)
    os.environ.pop("LANGUAGE", None)
    with contextlib.suppress(locale.Error):  # no C library has it not, but old ones of their own
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    sys.argv = [str(path), *argv]
    spec = importlib.util.spec_from_file_location("__main__", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = module
    spec.loader.exec_module(module)
