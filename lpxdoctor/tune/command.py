"""A command line with {port} and {arguments} in, the engine it starts here out: one process group a start."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from lpxdoctor import logs
from lpxdoctor.decode.variables import by_flag
from lpxdoctor.deploy.failures import error_in
from lpxdoctor.errors import UsageError
from lpxdoctor.ports import free_port
from lpxdoctor.tune.service import Hints, NotStartedError, Settings, StoppedError

_POLL_S = 0.5
_LOOK_S = 0.1
# SIGINT first, as Ctrl-C would: Python handles it from its first moment on, while SIGTERM has no effect on the first
# process of a container until that handles it. A large model takes some seconds to let the GPU go.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
_GRACE_S = 30.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # prctl(2)
_CONTAINERS = ("docker", "podman", "nerdctl")
_REMOVAL_LIMIT_S = 60.0
_LOG_LINES = 400
_TAIL = 15


@dataclass(frozen=True)
class Command:
    """A service that a command starts; limit_s is how long it may take to answer /health."""

    name: str
    words: tuple[str, ...]
    limit_s: float

    @property
    def hints(self) -> Hints:
        """Read the options that stand in the command itself."""
        flags = by_flag(self.words)
        served = self.words.index("serve") + 1 if "serve" in self.words else len(self.words)
        positional = self.words[served] if served < len(self.words) and not self.words[served].startswith("-") else None
        return Hints(flags=flags, model=flags.get("--model") or positional)

    def argv(self, settings: Settings, port: int) -> tuple[str, ...]:
        """Return the command with a port and the settings, less the flags that these take away."""
        found: list[str] = []
        for word in without(self.words, settings.removed):
            if word == "{arguments}":
                found.extend(settings.added)
            else:
                found.append(word.replace("{port}", str(port)))
        return tuple(found)

    def arguments(self, settings: Settings, /) -> tuple[str, ...]:
        """Return the command as it is run, less the port, which is another one each time."""
        return self.argv(settings, 0)

    @contextmanager
    def running(self, settings: Settings, is_stopped: Callable[[], bool], /) -> Generator[str]:
        """Start the command, wait until it answers, and end all its processes afterwards."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with tempfile.NamedTemporaryFile(prefix="lpxdoctor-engine-", suffix=".log") as log:
            argv, container = _noted(self.argv(settings, port), Path(f"{log.name}.container"))
            process = _started(argv, log.fileno())
            try:
                self._await(process, url, Path(log.name), is_stopped)
                yield url
            finally:
                _ended(process)
                _removed(container)

    def leave(self, _settings: Settings, /) -> None:
        """Do nothing: nothing ran before, and nothing is left running."""

    def _await(self, process: subprocess.Popen[bytes], url: str, log: Path, is_stopped: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.limit_s
        while not _is_healthy(url):
            if is_stopped():
                raise StoppedError("Interrupted while the engine started.")
            status = process.poll()
            if status is not None:
                raise _not_started(f"it ended with status {status}", log)
            if time.monotonic() > deadline:
                raise _not_started(f"no answer at /health within {self.limit_s:.0f} s (--start-timeout)", log)
            time.sleep(_POLL_S)


def command(text: str, limit_s: float) -> Command:
    """Read what --engine says.

    Raises:
        UsageError: it is no command line, or has no place for a port or for arguments.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--engine {text!r} is no command line: {error}.") from None
    for needed, what in (("{port}", "the port to listen on"), ("{arguments}", "the arguments to try")):
        if not any(needed in word for word in words):
            raise UsageError(
                f"--engine has no {needed}, which stands for {what}. Write it like\n"
                "  --engine 'vllm serve /srv/model --host 127.0.0.1 --port {port} {arguments}'"
            )
    if "{arguments}" not in words:
        raise UsageError("{arguments} must be a word of its own in --engine: several words take its place.")
    return Command(text, words, limit_s)


def without(words: Sequence[str], removed: Sequence[str]) -> list[str]:
    """Return words less some flags with their values."""
    kept: list[str] = []
    dropping = False
    for word in words:
        if word.startswith("-") or word == "{arguments}":
            dropping = word.partition("=")[0] in removed
        if not dropping:
            kept.append(word)
    return kept


@dataclass(frozen=True)
class _Container:
    """A container that a command runs: how its engine is called, and the file that will hold its id."""

    engine: tuple[str, ...]
    note: Path


def _noted(argv: tuple[str, ...], note: Path) -> tuple[tuple[str, ...], _Container | None]:
    """Have a container's id written to a file; None where the command runs none, or notes it by itself."""
    calls = (place for place, word in enumerate(argv) if Path(word).name in _CONTAINERS)
    place = next((place for place in calls if argv[place + 1 : place + 2] == ("run",)), None)
    if place is None or any(word.startswith("--cidfile") for word in argv):
        return argv, None
    run = place + 2
    return (*argv[:run], "--cidfile", str(note), *argv[run:]), _Container(argv[: place + 1], note)


def _removed(container: _Container | None) -> None:
    """Remove a container that is still there: killing the program that started it does not end what runs in it."""
    if container is None or not container.note.exists():
        return
    identity = container.note.read_text().strip()
    with suppress(OSError, subprocess.TimeoutExpired):
        argv = (*container.engine, "rm", "--force", identity)
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REMOVAL_LIMIT_S, check=False)
    container.note.unlink(missing_ok=True)


def _started(argv: Sequence[str], log: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_ends_with_us if sys.platform == "linux" else None,  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        raise UsageError(f"--engine: {argv[0]} cannot be started: {error.strerror}.") from None


def _ends_with_us() -> None:
    """Have the kernel end the engine where this program is killed: nobody else would, and it holds the GPU."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _is_healthy(url: str) -> bool:
    # Without a proxy of the environment: the engine is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, HTTPException):  # nobody answers, or somebody who does not speak HTTP
        return False


def _not_started(why: str, log: Path) -> NotStartedError:
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines()[-_LOG_LINES:] if line.strip()]
    last = error_in(lines) or (lines[-1].strip() if lines else "it said nothing")
    return NotStartedError(f"{why}: {last}", tuple(lines[-_TAIL:]), str(logs.keep("engine-tune", text)))


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End the group, first gently; return when none of it is left, so that the next start finds its memory free."""
    for number in _ENDS:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _GRACE_S
        while _lives(process) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)


def _lives(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether any process of the group is there, other than one that has ended and nobody has asked about."""
    process.poll()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command's name stands in parentheses and may contain anything; proc(5) numbers the fields.
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) == process.pid and state not in "ZX":
            return True
    return False
