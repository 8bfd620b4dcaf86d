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

_INTERVAL_S = 0.5
_NICE = 5  # the client that measures comes first


def main() -> int:
    """Read until the parent process ends."""
    parent = os.getppid()
    os.nice(_NICE)
    url, key = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, str])
    there = endpoint(url, key)
    while os.getppid() == parent:
        try:
            status, page = engine.fetch(there, "/metrics")
        except DoctorError:  # busy, or gone: the client will tell
            time.sleep(_INTERVAL_S)
            continue
        reading = gauges.parse(page, time.monotonic_ns()) if status == 200 else None
        if reading is None:
            return 0
        sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
        sys.stdout.buffer.flush()
        time.sleep(_INTERVAL_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
