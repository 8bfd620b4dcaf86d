"""A closed loop of streamed requests at one concurrency: an endpoint and a workload in, every arrival time out.

One thread waits for all sockets itself: so it knows when it asked for arrivals and can bound its own lateness, which an
event loop does not tell, and it has no need of one.
"""

import gc
import time
from select import EPOLLIN, EPOLLOUT, epoll

from lpxdoctor.decode.clock import offset
from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.decode.exchange import Exchange
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.http import ProtocolError
from lpxdoctor.decode.pace import Pace
from lpxdoctor.decode.retry import least_pause_s, pause_s
from lpxdoctor.decode.samples import Recording, Role
from lpxdoctor.decode.schedule import Schedule
from lpxdoctor.decode.slot import Slot
from lpxdoctor.decode.tally import Tally
from lpxdoctor.decode.transport import Transport, tls_maker
from lpxdoctor.decode.watch import Watch
from lpxdoctor.decode.workload import ChunkUsage, Workload

_TICK_S = 0.1


class Loop:
    """One rung under way; run() makes it and may be called once."""

    def __init__(
        self,
        endpoint: Endpoint,
        workload: Workload,
        concurrency: int,
        requests: int,
        *,
        timeout_s: float,
        hooks: Hooks,
        retries: bool = True,
    ) -> None:
        """Prepare so many requests at once; timeout_s is the longest silence within one.

        retries: failed requests are made again where that can help.

        Raises:
            MeasureError: TLS cannot be set up.
        """
        self._endpoint, self._workload, self._hooks = endpoint, workload, hooks
        self._concurrency, self._retries = concurrency, retries
        self._timeout_ns = int(timeout_s * 1e9)
        self._schedule = Schedule(concurrency, requests, workload.output_len)
        self._clock = offset()
        self._watch = Watch(self._clock)
        self._pace = Pace()
        self._tls = tls_maker(endpoint)
        self._epoll = epoll()
        self._connected: dict[int, tuple[Slot, Transport]] = {}  # by file descriptor
        self._counts_chunks = workload.dialect.chunk_usage is ChunkUsage.ALWAYS
        self._prompts = 0
        self._slots = tuple(Slot(index, self._prompt()) for index in range(concurrency))
        self._tally = Tally()
        self._resent, self._keeps_connections = 0, True
        self._paused: list[tuple[int, Slot]] = []
        self._working = concurrency
        self._ticked_ns = self._returned_ns = 0

    def run(self) -> Recording:
        """Make the requests, or as many as there are until the hooks say stop."""
        gc.collect()
        gc.disable()  # a collection takes milliseconds
        try:
            for slot in self._slots:
                self._next(slot)
            while self._working and not self._is_stopped():
                self._turn()
            client = self._watch.client()
        finally:
            gc.enable()
            for slot in self._slots:
                self._disconnect(slot)
            self._epoll.close()
        return Recording(
            concurrency=self._concurrency,
            asked=self._schedule.requests,
            output_len=self._workload.output_len,
            samples=tuple(self._tally.samples),
            client=client,
            stopped=self._schedule.stopped,
            resent=self._resent,
        )

    def _is_stopped(self) -> bool:
        if self._hooks.is_stopped():
            self._schedule.stopped = "interrupted"
            return True
        return False

    def _turn(self) -> None:
        self._pace.rest(self._returned_ns)
        asked_ns = time.monotonic_ns()
        ready = self._epoll.poll(_TICK_S)
        self._returned_ns = returned_ns = time.monotonic_ns()
        if self._watch.on:
            self._watch.turn(asked_ns, returned_ns)
        # All that has come is taken first and looked at afterwards, so that what is read last is not kept waiting.
        arrived: list[tuple[Slot, Transport, bytes]] = []
        for number, mask in ready:
            slot, transport = self._connected[number]
            try:
                if transport.ready and mask & ~EPOLLOUT:
                    content = transport.receive()
                    if content is not None:
                        arrived.append((slot, transport, content))
                else:
                    self._progress(slot, transport)
            except (ProtocolError, OSError) as error:
                self._break(slot, transport, error)
        for slot, transport, content in arrived:
            self._read(slot, transport, content)
        if returned_ns - self._ticked_ns > _TICK_S * 1e9:
            self._ticked_ns = returned_ns
            self._tick(returned_ns)

    def _progress(self, slot: Slot, transport: Transport) -> None:
        transport.progress()
        self._watch_socket(slot, transport)
        if transport.ready and slot.exchange is None:
            self._send(slot, transport)

    def _break(self, slot: Slot, transport: Transport, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            self._fail(slot, f"malformed: {error}")
        elif not self._was_stale(slot, transport):
            self._fail(slot, f"{'cut' if transport.ready else 'connect'}: {error}")

    def _was_stale(self, slot: Slot, transport: Transport) -> bool:
        """Send a request again that went to a connection which the server had just ended; tell whether that was it.

        Some servers offer to keep a connection and end it after every stream (llama.cpp): it gets a new one each time.
        """
        if slot.exchange is None or slot.exchange.has_begun or not transport.has_answered:
            return False
        self._resent += 1
        self._keeps_connections, slot.exchange = False, None
        self._disconnect(slot)
        self._connect(slot)
        return True

    def _read(self, slot: Slot, transport: Transport, content: bytes) -> None:
        exchange = slot.exchange
        if exchange is None:  # the server ends a connection that is not in use
            self._disconnect(slot)
            return
        arrived_ns, response = transport.arrived_ns, exchange.response
        try:
            if content:
                chunks = exchange.feed(content, arrived_ns)
                if chunks:
                    slot.awaited_since_ns = transport.read_ns  # not for comments that only keep the connection alive
                    self._note_chunks(slot, exchange, transport, chunks)
            else:
                response.end()
                if not response.complete:
                    raise ConnectionResetError(f"the server ended the stream after {len(exchange.arrivals_ns)} chunks")
            if response.complete:
                exchange.end(arrived_ns)
                if transport.stamped:
                    self._pace.note(exchange.started_ns, exchange.arrivals_ns, bundled=bool(exchange.bundles))
                self._finish(slot, exchange, arrived_ns)
        except (ProtocolError, OSError) as error:
            self._break(slot, transport, error)

    def _note_chunks(self, slot: Slot, exchange: Exchange, transport: Transport, chunks: int) -> None:
        if chunks == len(exchange.arrivals_ns):
            self._schedule.had_first_token(slot.index)
        if self._watch.on:
            stamped = transport.stamped
            span_ns = self._watch.read(transport.arrived_ns, transport.read_ns, stamped=stamped, chunks=chunks)
            if span_ns:
                exchange.note_bundle(chunks, span_ns)

    def _finish(self, slot: Slot, exchange: Exchange, ended_ns: int) -> None:
        failure = exchange.failure()
        slot.exchange = None
        self._schedule.ended(slot.index, failed=bool(failure))
        half_sent = slot.transport is not None and slot.transport.wants_to_write  # refused before it was read
        if half_sent or not (exchange.response.keeps_alive and self._keeps_connections):
            self._disconnect(slot)
        elif slot.transport is not None:
            slot.transport.has_answered = True
        if failure:
            self._pause(slot, failure, exchange.response.headers.get("retry-after", ""))
        else:
            if self._workload.dialect.chunk_usage is ChunkUsage.WHEN_NEEDED and not self._counts_chunks:
                self._counts_chunks = exchange.has_chunks_of_several()
            self._next(slot)
            if slot.exchange and self._watch.on:
                self._watch.idle_ns += slot.exchange.started_ns - ended_ns
        try:
            self._tally.record(exchange.sample(ended_ns, failure))
        except ProtocolError as error:
            self._tally.record(exchange.broken(ended_ns, f"malformed: {error}"))

    def _fail(self, slot: Slot, failure: str) -> None:
        now = time.monotonic_ns()
        role = slot.work[0] if slot.work else Role.WARM_UP
        exchange = slot.exchange or Exchange(role, slot.index, slot.retried_for)
        exchange.started_ns = exchange.started_ns or now
        slot.exchange = None
        self._disconnect(slot)
        self._tally.record(exchange.broken(now, failure))
        self._schedule.ended(slot.index, failed=True)
        self._pause(slot, failure)

    def _pause(self, slot: Slot, failure: str, retry_after: str = "") -> None:
        slot.awaited_since_ns = 0
        counts = self._retries and slot.work is not None and slot.work[0] in (Role.COUNTED, Role.RETRY)
        wait_s = pause_s(failure, slot.retries, retry_after) if counts else None
        slot.again_for = "" if wait_s is None else failure.partition(":")[0]
        self._paused.append((time.monotonic_ns() + int((wait_s or least_pause_s(1)) * 1e9), slot))

    def _next(self, slot: Slot) -> None:
        slot.retried_for, slot.again_for = slot.again_for, ""
        if slot.retried_for and slot.work and not self._schedule.stopped:
            slot.work, slot.retries = (Role.RETRY, slot.work[1]), slot.retries + 1
        else:
            slot.work, slot.retries = self._schedule.next(slot.index, self._least_received), 0
        if slot.work is None:
            slot.awaited_since_ns = 0
            self._working -= 1
            return
        slot.awaited_since_ns = time.monotonic_ns()
        if slot.transport is None:
            self._connect(slot)
        elif slot.transport.ready:
            self._send(slot, slot.transport)

    def _least_received(self) -> int:
        return self._tally.least_received(slot.exchange for slot in self._slots)

    def _connect(self, slot: Slot) -> None:
        try:
            transport = Transport(self._endpoint, self._clock.ns, self._tls() if self._tls else None)
        except OSError as error:
            self._fail(slot, f"connect: {error}")
            return
        slot.transport = transport
        slot.interest = EPOLLIN | EPOLLOUT
        self._connected[transport.fileno()] = slot, transport
        self._epoll.register(transport.fileno(), slot.interest)

    def _send(self, slot: Slot, transport: Transport) -> None:
        assert slot.work is not None
        role, tokens = slot.work
        body = self._workload.body(slot.prompt, tokens, chunk_usage=self._counts_chunks)
        prepared = transport.prepare(self._endpoint.request("POST", self._workload.dialect.path, body))
        slot.exchange = exchange = Exchange(role, slot.index, slot.retried_for)
        if role is Role.COUNTED and not self._watch.on:
            self._watch.start()
        exchange.started_ns = time.monotonic_ns()
        try:
            transport.send(prepared)
        except OSError as error:
            if not self._was_stale(slot, transport):
                self._fail(slot, f"cut: {error}")
            return
        if self._watch.on:
            self._watch.sends_ns.append(time.monotonic_ns() - exchange.started_ns)
        self._watch_socket(slot, transport)
        slot.prompt = self._prompt()

    def _prompt(self) -> bytes:
        self._prompts += 1
        return self._workload.prompt(self._prompts)

    def _watch_socket(self, slot: Slot, transport: Transport) -> None:
        interest = EPOLLIN | (EPOLLOUT if transport.wants_to_write else 0)
        if interest != slot.interest:
            slot.interest = interest
            self._epoll.modify(transport.fileno(), interest)

    def _disconnect(self, slot: Slot) -> None:
        if slot.transport is not None:
            self._epoll.unregister(slot.transport.fileno())
            del self._connected[slot.transport.fileno()]
            slot.transport.close()
            slot.transport = None

    def _tick(self, now: int) -> None:
        due = [slot for due_ns, slot in self._paused if due_ns <= now]
        self._paused = [(due_ns, slot) for due_ns, slot in self._paused if due_ns > now]
        for slot in due:
            self._next(slot)
        for slot in self._slots:
            if failure := slot.trouble(now, self._timeout_ns):
                self._fail(slot, failure)
        self._hooks.progress(self._tally.progress(self._concurrency, self._schedule.requests))
