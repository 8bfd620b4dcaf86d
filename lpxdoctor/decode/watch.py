"""How late the client itself is: turns of its loop and reads in, their record out."""

import time
from array import array

from lpxdoctor.decode.clock import Offset, offset
from lpxdoctor.decode.samples import Client

_WAITED_NS = 20_000  # a poll that took longer had nothing to deliver at first
# Chunks that came in one read were sent at once, unless the read was later than this after the last of them: few of a
# late client's reads come so closely behind a chunk, so that nearly all are told.
_ON_TIME_NS = 200_000


class Watch:
    """Notes each turn of the loop from start() to client()."""

    def __init__(self, clock: Offset) -> None:
        self.on = False
        self.idle_ns = 0
        self.sends_ns = array("q")
        self._clock = clock
        self._lags = array("q")
        self._bundled = 0
        self._unstamped = 0
        self._longest_turn_ns = 0
        self._polled_ns = 0  # when the last poll returned
        self._nothing_ns = 0  # what is read in this turn was not there then
        self._ready_ns = 0  # and has been since then, as far as the program can tell
        self._began_ns = self._cpu_ns = 0

    def start(self) -> None:
        """Begin to take notes: the first counted request is about to be sent."""
        self.on = True
        self._began_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._polled_ns = self._began_ns

    def turn(self, asked_ns: int, returned_ns: int) -> None:
        """Note a poll for arrivals: when it was asked, when it returned."""
        self._longest_turn_ns = max(self._longest_turn_ns, asked_ns - self._polled_ns)
        waited = returned_ns - asked_ns > _WAITED_NS
        self._nothing_ns, self._ready_ns = (asked_ns, returned_ns) if waited else (self._polled_ns, self._polled_ns)
        self._polled_ns = returned_ns

    def read(self, arrived_ns: int, read_ns: int, *, stamped: bool, chunks: int) -> int:
        """Note a read that brought chunks; return how long before the last of them the first may have come."""
        late_ns = read_ns - (arrived_ns if stamped else self._ready_ns)
        self._lags.append(late_ns)
        self._unstamped += not stamped
        if chunks == 1:
            return 0
        self._bundled += 1
        return max(0, arrived_ns - self._nothing_ns) if late_ns > _ON_TIME_NS else 0

    def client(self) -> Client:
        """Return the notes."""
        now = offset()
        return Client(
            kernel_clock=bool(self._lags) and self._unstamped * 1000 <= len(self._lags),
            reads=len(self._lags),
            unstamped=self._unstamped,
            lags_ns=self._lags,
            bundled=self._bundled,
            longest_turn_ns=self._longest_turn_ns,
            sends_ns=self.sends_ns,
            idle_ns=self.idle_ns,
            cpu_ns=time.process_time_ns() - self._cpu_ns,
            wall_ns=time.monotonic_ns() - self._began_ns,
            clock_step_ns=abs(now.ns - self._clock.ns),
        )
