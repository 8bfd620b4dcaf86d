"""Run on a managed host: the collector and the probes come on standard input, the evidence goes to standard output.

Standard library alone and Python 3.9 syntax. Nothing stays: the collector lies in a directory of its own, in memory
where the host has such a place, and that directory goes before the answer does, and also when the connection breaks
(standard input ends) or a signal comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
import zlib
from typing import Any

IN_MEMORY, ON_DISK = ("/dev/shm",), ("/tmp", "/var/tmp")  # noqa: S108 - a directory with a name of chance in them
_GRACE_S = 2.0


def main() -> int:
    """Read "SIZE MARK" and a packed collector, collect, and print MARK, the size of the answer and the answer."""
    size, mark = sys.stdin.buffer.readline().split()
    packed = sys.stdin.buffer.read(int(size))
    if len(packed) < int(size):
        return 1
    sent = json.loads(zlib.decompress(packed))
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))  # noqa: ARG005 - signal's signature
    sys.dont_write_bytecode = True
    directory = ""
    try:
        directory = unpack(
            sent["files"], (*IN_MEMORY, os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), *ON_DISK)
        )
        answer = ask(directory, sent)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(b"\n%s %d\n%s" % (mark, len(answer), answer))
        sys.stdout.buffer.flush()
    return 0


def unpack(files: dict[str, str], places: tuple[str | None, ...]) -> str:
    """Write the files below a new directory and return it; the first place with room for them is taken."""
    refusals = []
    for place in places:
        if not place:
            continue
        directory = os.path.join(place, "lpxdoctor-" + os.urandom(8).hex())  # noqa: PTH118 - pathlib takes 10 ms to import
        try:
            os.mkdir(directory, 0o700)  # noqa: PTH102
            for name, text in files.items():
                path = os.path.join(directory, name)  # noqa: PTH118
                os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
                with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(text)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            refusals.append("%s: %s" % (place, error.strerror))  # noqa: UP031
            continue
        return directory
    return sys.exit("lpxdoctor: no room: " + ", ".join(refusals))


def ask(directory: str, sent: dict[str, Any]) -> bytes:
    """Collect in a child, and end it when the connection does: the collector itself waits for its probes alone."""
    ours, its = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(ours)
            with os.fdopen(its, "wb") as pipe:
                pipe.write(zlib.compress(collected(directory, sent), 1))
            status = 0
        except Exception as error:  # noqa: BLE001 - of any kind: the other side prints what it was
            sys.stderr.write("lpxdoctor: the collector failed: %s: %s\n" % (type(error).__name__, error))  # noqa: UP031
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(its)
    try:
        return listen(ours)
    finally:
        end(pid)


def collected(directory: str, sent: dict[str, Any]) -> bytes:
    """Ask this host the probes."""
    sys.path.insert(0, directory)
    from pathlib import Path  # noqa: PLC0415 - here, and not while the parent starts

    from lpxdoctor import evidence  # noqa: PLC0415 - from the directory
    from lpxdoctor.collect import collect  # noqa: PLC0415

    probes = [
        getattr(evidence, kind)(**{**values, **({"argv": tuple(values["argv"])} if "argv" in values else {})})
        for kind, values in sent["probes"]
    ]
    programs = {name: Path(directory, path) for name, path in sent["programs"].items()}
    found = collect(probes, programs, limit_s=sent["limit_s"], collector=sent["collector"])
    return evidence.to_json(found).encode()


def listen(pipe: int) -> bytes:
    """Return what comes through the pipe until its end; leave when standard input ends before."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(0, select.POLLIN)
    data = bytearray()
    while True:
        for fd, _ in poll.poll():
            part = os.read(fd, 1 << 16)
            if fd == pipe:
                data += part
                if not part:
                    return bytes(data) if data else sys.exit(1)
            elif not part:
                sys.exit("lpxdoctor: the connection ended")


def end(pid: int) -> None:
    """End the collector, which then ends its probes; what cannot be killed is left behind."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
