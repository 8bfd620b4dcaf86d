"""How late the client itself is: turns of its loop and reads in, their record out."""

import time
from array import array

from lpxdoctor.decode.clock import Offset, offset
from lpxdoctor.decode.samples import Bundle, Client

_WAITED_NS = 20_000  # a poll that took longer had nothing to deliver at first


class Watch:
    """Notes each turn of the loop from start() to client()."""

    def __init__(self, clock: Offset) -> None:
        self.on = False
        self.idle_ns = 0
        self.sends_ns = array("q")
        self._clock = clock
        self._lags = array("q")
        self._bundles: list[Bundle] = []
        self._unstamped = 0
        self._longest_turn_ns = 0
        self._polled_ns = 0  # when the last poll returned
        # What is read in this turn cannot have arrived before: it was not there at the poll before.
        self._earliest_ns = 0
        self._waited = True
        self._began_ns = self._cpu_ns = 0

    def start(self) -> None:
        """Begin to take notes: the first counted request is about to be sent."""
        self.on = True
        self._began_ns, self._cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self._polled_ns = self._began_ns

    def turn(self, asked_ns: int, returned_ns: int) -> None:
        """Note a poll for arrivals: when it was asked, when it returned."""
        self._longest_turn_ns = max(self._longest_turn_ns, asked_ns - self._polled_ns)
        self._waited = returned_ns - asked_ns > _WAITED_NS
        # A poll that waited was ended by the first arrival: nothing read now is older than the oldest stamp in it.
        self._earliest_ns = returned_ns if self._waited else self._polled_ns
        self._polled_ns = returned_ns

    def read(self, arrived_ns: int, read_ns: int, *, stamped: bool, chunks: int, has_first: bool) -> None:
        """Note a read that brought chunks with tokens."""
        if self._waited and arrived_ns < self._earliest_ns:
            self._earliest_ns = arrived_ns
        if stamped:
            self._lags.append(read_ns - arrived_ns)
        else:
            self._unstamped += 1
            self._lags.append(read_ns - self._earliest_ns)
        if chunks > 1:
            span_ns = max(0, arrived_ns - self._earliest_ns)
            self._bundles.append(Bundle(chunks=chunks, span_ns=span_ns, has_first=has_first))

    def client(self) -> Client:
        """Return the notes."""
        now = offset()
        return Client(
            kernel_clock=bool(self._lags) and self._unstamped * 1000 <= len(self._lags),
            reads=len(self._lags),
            unstamped=self._unstamped,
            lags_ns=self._lags,
            bundles=tuple(self._bundles),
            longest_turn_ns=self._longest_turn_ns,
            sends_ns=self.sends_ns,
            idle_ns=self.idle_ns,
            cpu_ns=time.process_time_ns() - self._cpu_ns,
            wall_ns=time.monotonic_ns() - self._began_ns,
            clock_step_ns=abs(now.ns - self._clock.ns),
        )
