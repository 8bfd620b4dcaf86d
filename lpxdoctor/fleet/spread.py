"""Do the same work on many items in as many processes as there are CPUs: items and a function in, results out."""

import json
import os
import selectors
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

from lpxdoctor.child import start_function
from lpxdoctor.errors import DoctorError

T = TypeVar("T")
_SMALL = 8  # so few are done before another process has begun


def spread(items: Sequence[T], work: Callable[[T], str], processes: int | None = None) -> Generator[tuple[T, str]]:
    """Yield each item with what work returned for it, as it comes.

    A process hands its results over as it goes, so that nobody holds more than one item's evidence.

    Raises:
        DoctorError: a process ended before its items were done.
    """
    count = min(processes or len(os.sched_getaffinity(0)), -(-len(items) // _SMALL))
    if count <= 1:
        yield from ((item, work(item)) for item in items)
        return
    selector = selectors.DefaultSelector()
    pids: list[int] = []
    left = set(range(len(items)))
    try:
        for number in range(count):
            pid, (out, err) = start_function(partial(_do, items, range(number, len(items), count), work))
            pids.append(pid)
            selector.register(out, selectors.EVENT_READ, bytearray())
            selector.register(err, selectors.EVENT_READ, None)
        for line in _lines(selector):
            index, result = json.loads(line)
            left.discard(index)
            yield items[index], result
    finally:
        for key in list(selector.get_map().values()):  # a process that still writes ends by that
            os.close(key.fd)
        selector.close()
        for pid in pids:
            os.waitpid(pid, 0)
    if left:
        raise DoctorError(f"A process that judged ended before {len(left)} of {len(items)} hosts were done.")


def _do(items: Sequence[T], part: range, work: Callable[[T], str]) -> None:
    for index in part:
        sys.stdout.write(json.dumps([index, work(items[index])]) + "\n")
        sys.stdout.flush()


def _lines(selector: selectors.BaseSelector) -> Generator[bytes]:
    """Yield whole lines from the processes until all have closed; what they say on standard error goes to ours."""
    while selector.get_map():
        for key, _ in selector.select():
            data = os.read(key.fd, 1 << 20)
            if not data:
                selector.unregister(key.fd)
                os.close(key.fd)
            elif key.data is None:
                sys.stderr.write(data.decode("utf-8", "replace"))
            else:
                key.data.extend(data)
                *lines, key.data[:] = bytes(key.data).split(b"\n")
                yield from lines
