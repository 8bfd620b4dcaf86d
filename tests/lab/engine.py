"""The machine's Docker Engine for tests: a command line in, its output out, with an engine made to answer first."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from lpxdoctor import ports

LAB = Path(__file__).resolve().parent
ROOT = LAB.parent.parent
LABEL = "lpxdoctor-lab"  # its value is the process that started the container
WORKERS = 16  # at most; no two of a run are given one port


def run(*argv: str | Path, timeout_s: float = 300, stdin: bytes | None = None) -> str:
    """Return what a command wrote to stdout, or fail the test with everything it said."""
    done = subprocess.run(argv, capture_output=True, timeout=timeout_s, input=stdin, check=False)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"{argv} ended with {done.returncode}\n{said}\n{done.stderr.decode(errors='replace')}"
    return said.strip()


def docker(*argv: str | Path, timeout_s: float = 300, stdin: bytes | None = None) -> str:
    """Run one docker command against the machine's engine."""
    return run("docker", *argv, timeout_s=timeout_s, stdin=stdin)


def build(script: Path, *argv: str) -> str:
    """Run a build script of this repository and return the image it names on its last line."""
    return run(script, *argv, timeout_s=3600).splitlines()[-1]


@contextmanager
def container(image: str, *options: str, command: tuple[str, ...] = (), files: bytes = b"") -> Generator[str]:
    """Start a container, yield its id and remove it with its volumes; files is a tar unpacked at / before it starts."""
    identity = docker("create", "--label", f"{LABEL}={os.getpid()}", *options, image, *command)
    try:
        if files:
            docker("cp", "-", f"{identity}:/", stdin=files)
        docker("start", identity)
        yield identity
    finally:
        wait_until(lambda: is_removed(identity), "its removal", lambda: docker("ps", "--all"), 300)


def is_removed(identity: str) -> bool:
    """Return whether Docker has removed a container, which it refuses until its processes have gone."""
    argv = ("docker", "rm", "--force", "--volumes", identity)
    return subprocess.run(argv, capture_output=True, timeout=300, check=False).returncode == 0


def remove_orphans() -> None:
    """Remove the containers of runs that were killed: the process that their label or engine's name tells is gone."""
    told = f'{{{{.ID}}}}\t{{{{.Label "{LABEL}"}}}}\t{{{{.Label "lpxdoctor.engine"}}}}'
    for line in docker("ps", "--all", "--no-trunc", "--format", told).splitlines():
        identity, pid, engine = f"{line}\t\t".split("\t")[:3]
        named = re.fullmatch(r"lab-\w+-(\d+)", engine)
        pid = pid or (named[1] if named else "")
        if pid and not Path("/proc", pid).exists():
            is_removed(identity)  # or another worker is about to, which Docker calls an error


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing holds, and that no connection is given meanwhile by itself."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    return ports.free_port(ports.BELOW_THOSE_OF_CONNECTIONS[worker::WORKERS])


def wait_until(true: Callable[[], bool], what: str, said: Callable[[], str], timeout_s: float) -> None:
    """Poll until a condition holds; fail the test with what was said last when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come within {timeout_s:.0f} s:\n{said()}"
        time.sleep(0.3)
