"""What the engine says of its load while a rung lasts: its metrics pages in, an EngineLoad per rung out."""

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from typing import IO

import msgspec

from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.decode.profile import EngineLoad

_END_TIMEOUT_S = 2
_LINE = re.compile(
    rb"^vllm:(num_requests_running|num_requests_waiting|(?:gpu_|kv_)cache_usage_perc)(?:\{.*\})? (\S+)", re.MULTILINE
)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The gauges at one moment: requests over all replicas, the fullest KV cache as a share; None where not told."""

    at_ns: int
    running: float
    waiting: float
    kv_cache: float | None


def parse(page: bytes, at_ns: int) -> Reading | None:
    """Read a metrics page; None when it has none of these gauges."""
    found: dict[bytes, list[float]] = {}
    for name, value in _LINE.findall(page):
        with contextlib.suppress(ValueError):
            found.setdefault(name, []).append(float(value))
    running, waiting = found.get(b"num_requests_running"), found.get(b"num_requests_waiting")
    if running is None or waiting is None:
        return None
    cache = found.get(b"kv_cache_usage_perc") or found.get(b"gpu_cache_usage_perc")
    return Reading(at_ns=at_ns, running=sum(running), waiting=sum(waiting), kv_cache=max(cache) if cache else None)


class Watcher:
    """The polling process and what it has read."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output

    def during(self, began_ns: int, ended_ns: int) -> EngineLoad | None:
        """Return the load between two moments of the monotonic clock, None when nothing was read then."""
        number = self._output.fileno()
        lines = os.pread(number, os.fstat(number).st_size, 0).split(b"\n")[:-1]
        readings = [msgspec.json.decode(line, type=Reading) for line in lines]
        return summary([reading for reading in readings if began_ns <= reading.at_ns <= ended_ns])


def summary(readings: Sequence[Reading]) -> EngineLoad | None:
    """Summarise readings over a rung, None without any."""
    if not readings:
        return None
    running, waiting = [one.running for one in readings], [one.waiting for one in readings]
    cache = [one.kv_cache for one in readings if one.kv_cache is not None]
    return EngineLoad(
        samples=len(readings),
        running_p50=statistics.median(running),
        running_max=max(running),
        waiting_p50=statistics.median(waiting),
        waiting_share=sum(value > 0 for value in waiting) / len(waiting),
        kv_cache_p50=statistics.median(cache) if cache else None,
        kv_cache_max=max(cache, default=None),
    )


@contextlib.contextmanager
def watched(endpoint: Endpoint | None) -> Generator[Watcher]:
    """Read the engine's gauges until the block ends, in a process of its own: a thread would hold the client up.

    endpoint is None for an engine that has none: nothing is read then.
    """
    if endpoint is None:
        with tempfile.TemporaryFile() as nothing:
            yield Watcher(nothing)
        return
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as said:
        said.write(msgspec.json.encode((endpoint.url, endpoint.api_key)))  # argv would show the key to everybody
        said.seek(0)
        argv = (sys.executable, "-m", "lpxdoctor.decode.poller")
        process = subprocess.Popen(argv, stdin=said, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            yield Watcher(output)
        finally:
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
