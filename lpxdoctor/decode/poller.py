"""A program of its own: a server's URL and key on stdin, a JSON line per reading of its gauges out, until the end.

It ends with its parent, or at once where the server has no such gauges.
"""

import os
import sys
import time

import msgspec

from lpxdoctor.decode import engine, gauges
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.errors import DoctorError

# vLLM makes the page in the process that also sends the tokens, and sends none meanwhile: so few gaps are touched that
# even their 99th percentile stays what it is.
_BUSY_SHARE = 0.006
_LEAST_S, _MOST_S = 0.5, 1.0
_NICE = 5  # the client that measures comes first


def main() -> int:
    """Read until the parent process ends."""
    parent = os.getppid()
    os.nice(_NICE)
    url, key = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, str])
    there = endpoint(url, key)
    while os.getppid() == parent:
        began_ns = time.monotonic_ns()
        try:
            status, page = engine.fetch(there, "/metrics")
        except DoctorError:  # busy, or gone: the client will tell
            time.sleep(_MOST_S)
            continue
        ended_ns = time.monotonic_ns()
        reading = gauges.parse(page, ended_ns) if status == 200 else None
        if reading is None:
            return 0
        sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
        sys.stdout.buffer.flush()
        time.sleep(min(_MOST_S, max(_LEAST_S, (ended_ns - began_ns) / 1e9 / _BUSY_SHARE)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
