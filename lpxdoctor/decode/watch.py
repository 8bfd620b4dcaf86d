"""How late the client itself is: turns of its loop and reads in, their record out."""

import os
import time
from array import array

from lpxdoctor.decode.clock import Offset, offset
from lpxdoctor.decode.samples import Client

_MANY = 1 << 12
_WAKING_NS = 100_000  # from an arrival to a thread that runs, when a processor is free; also the longest system call
# Linux tells how long this thread was ready to run and did not: "cpu_ns wait_ns slices". It needs CONFIG_SCHED_INFO,
# which distributions set. Source: https://www.kernel.org/doc/html/latest/scheduler/sched-stats.html
_WAITS = "/proc/thread-self/schedstat"


class Watch:
    """Notes each turn of the loop from start() to client()."""

    def __init__(self, clock: Offset) -> None:
        self.on = False
        self.idle_ns = 0
        self.sends_ns = array("q")
        self._clock = clock
        self._lags = array("q")
        self._last_lags: list[int] = []  # to be put there: an array takes many at once for a tenth of the time
        self._bundled = self._unstamped = 0
        self._longest_turn_ns = 0
        self._waits = _open(_WAITS)
        self._waited_ns = 0  # for a processor, in all
        self._polled_ns = 0  # when the last poll returned
        self._nothing_ns = 0  # what is read in this turn was not there then
        self._ready_ns = 0  # and is there since then, as far as the program's own clock tells
        self._late_ns: int | None = None  # the thread can have run this long after the first arrival; None: not told
        self._began_ns = self._cpu_ns = 0

    def start(self) -> None:
        """Begin to take notes: the first counted request is about to be sent."""
        self.on = True
        self._began_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._polled_ns = self._nothing_ns = self._ready_ns = self._began_ns
        self._waited_ns = self._wait_ns()

    def turn(self, asked_ns: int, returned_ns: int) -> None:
        """Note a poll for arrivals: when it was asked, when it returned."""
        if len(self._last_lags) >= _MANY:
            self._keep_lags()
        self._longest_turn_ns = max(self._longest_turn_ns, asked_ns - self._polled_ns)
        waited_before_ns, self._waited_ns = self._waited_ns, self._wait_ns()
        late_ns = self._waited_ns - waited_before_ns + _WAKING_NS
        if returned_ns - asked_ns > late_ns:  # there was nothing at first, and the first arrival ended the poll
            self._nothing_ns, self._ready_ns = asked_ns, returned_ns
            self._late_ns = late_ns if self._waits is not None else None
        else:
            self._nothing_ns = self._ready_ns = self._polled_ns
            self._late_ns = None
        self._polled_ns = returned_ns

    def read(self, arrived_ns: int, read_ns: int, *, stamped: bool, chunks: int) -> int:
        """Note a read that brought chunks; return how long before the last of them the first may have come.

        A poll that waited was ended by the first arrival, whose time is therefore known to within the time that this
        thread took to run. After a poll that did not wait, and where the last chunk's stamp is older than that, the
        first may have come at any time since the last look that found nothing.
        """
        delay_ns = read_ns - (arrived_ns if stamped else self._ready_ns)
        self._last_lags.append(delay_ns)
        self._unstamped += not stamped
        if chunks == 1:
            return 0
        self._bundled += 1
        span_ns = max(0, arrived_ns - self._nothing_ns)
        if self._late_ns is None:
            return span_ns
        late_ns = self._late_ns + read_ns - self._polled_ns
        return span_ns if stamped and delay_ns > late_ns else min(span_ns, late_ns)

    def client(self) -> Client:
        """Return the notes; none can be taken afterwards."""
        if self._waits is not None:
            os.close(self._waits)
            self._waits = None
        self._keep_lags()
        now = offset()
        return Client(
            kernel_clock=bool(self._lags) and self._unstamped * 1000 <= len(self._lags),
            reads=len(self._lags),
            lags_ns=self._lags,
            bundled=self._bundled,
            longest_turn_ns=self._longest_turn_ns,
            sends_ns=self.sends_ns,
            idle_ns=self.idle_ns,
            cpu_ns=time.process_time_ns() - self._cpu_ns,
            wall_ns=time.monotonic_ns() - self._began_ns,
            clock_step_ns=abs(now.ns - self._clock.ns),
        )

    def _keep_lags(self) -> None:
        self._lags.extend(self._last_lags)
        self._last_lags.clear()

    def _wait_ns(self) -> int:
        return 0 if self._waits is None else int(os.pread(self._waits, 96, 0).split()[1])


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
