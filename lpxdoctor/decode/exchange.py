"""One request's answer as it comes: reads with their arrival times in, a Sample out."""

from array import array

from lpxdoctor.decode import events
from lpxdoctor.decode.events import Kind, Splitter
from lpxdoctor.decode.http import ProtocolError, Response
from lpxdoctor.decode.samples import Bundle, Role, Sample

_ERROR_TEXT_BYTES = 4096
_ONE_EACH = 1.01  # tokens per chunk


class Exchange:
    """The answer to one streamed completion request."""

    __slots__ = (
        "_before_last", "_done", "_error", "_first", "_flows", "_last", "_opening", "_refusal", "_splitter",
        "_usage", "arrivals_ns", "bundles", "has_begun", "response", "retried_for", "role", "slot", "started_ns",
    )  # fmt: skip

    def __init__(self, role: Role, slot: int, retried_for: str = "") -> None:
        self.role = role
        self.retried_for = retried_for
        self.slot = slot
        self.started_ns = 0
        self.has_begun = False  # something of the answer has come
        self.arrivals_ns: list[int] = []
        self.bundles: list[Bundle] = []
        self.response = Response()
        self._splitter = Splitter()
        self._first = self._before_last = self._last = self._usage = b""
        self._error = b""  # an event that reports one
        self._refusal = b""  # the beginning of an answer, as long as there is no token in it
        self._done = False
        self._opening: events.Opening | None = None  # of the first event with tokens
        self._flows = False  # the answer is read as far as the end of an event and of an HTTP chunk

    def feed(self, content: bytes, arrived_ns: int) -> int:
        """Take what one read brought; return how many chunks with tokens were in it.

        Raises:
            ProtocolError: it is no part of a streamed completion.
        """
        if self._flows:
            if self._opening and (event := self._opening.event_of(content)):
                self.arrivals_ns.append(arrived_ns)
                self._before_last, self._last = self._last, event
                return 1
            if found := events.only_tokens(content):
                self._note_tokens(found, arrived_ns)
                return len(found)
        self.has_begun, self._flows = True, False
        body = self.response.feed(content)
        if not body:
            return 0
        before = len(self.arrivals_ns)
        if not before:
            self._refusal = (self._refusal + body)[:_ERROR_TEXT_BYTES]
            if self.response.status != 200 or self.response.headers.get("content-encoding", "identity") != "identity":
                return 0
        for event in self._splitter.feed(body):
            self._note(event, arrived_ns)
        self._flows = self.response.is_between_chunks and self._splitter.is_between_events
        return len(self.arrivals_ns) - before

    def _note_tokens(self, found: list[bytes], arrived_ns: int) -> None:
        for event in found:
            self.arrivals_ns.append(arrived_ns)
            self._before_last, self._last = self._last, event
        self._first = self._first or found[0]
        self._opening = self._opening or events.Opening(found[0])

    def note_bundle(self, chunks: int, span_ns: int) -> None:
        """Note that the last chunks were read at once by a late client."""
        self.bundles.append(Bundle(len(self.arrivals_ns) - chunks, chunks, span_ns))

    def end(self, arrived_ns: int) -> None:
        """Note that the response is complete.

        Raises:
            ProtocolError: what stands behind the last event is none.
        """
        for event in self._splitter.end():
            self._note(event, arrived_ns)

    def _note(self, event: bytes, arrived_ns: int) -> None:
        kind = events.kind(event)
        if kind is Kind.TOKENS:
            self._note_tokens([event], arrived_ns)
        elif kind is Kind.BARE:
            self._note_bare(event)
        elif kind is Kind.USAGE:
            self._usage = event
        elif kind is Kind.ERROR:
            self._error = self._error or event
        elif kind is Kind.DONE:
            self._done = True

    def _note_bare(self, event: bytes) -> None:
        decoded = events.decode(event)
        self._done = self._done or any(choice.finish_reason for choice in decoded.choices)
        if decoded.usage and self.arrivals_ns:
            self._usage = event

    def failure(self) -> str:
        """Return what is wrong with the complete response, as "kind: what was seen", "" when nothing is."""
        headers = self.response.headers
        if self.response.status != 200:
            moved = f"it is at {headers['location']} now: give that URL" if "location" in headers else ""
            return f"http-{self.response.status}: {moved or _text(self._refusal)}"
        if self._error:
            return f"stream-error: {_text(events.data(self._error))}"
        if not self.arrivals_ns:
            kind = headers.get("content-encoding") or headers.get("content-type", "of no type")
            return (
                f"empty: the answer ({kind}) has no chunk with tokens; is it streamed? {_text(self._refusal)}".rstrip()
            )
        if not self._done and not any(choice.finish_reason for choice in events.decode(self._last).choices):
            return f"cut: the stream ended after {len(self.arrivals_ns)} chunks without saying why"
        return ""

    def has_chunks_of_several(self) -> bool:
        """Tell whether the server counted more tokens than it sent chunks; one late chunk in a hundred is no habit."""
        try:
            usage = events.decode(self._usage or self._last).usage
        except ProtocolError:
            return False
        return usage is not None and usage.completion_tokens > _ONE_EACH * len(self.arrivals_ns)

    def sample(self, ended_ns: int, failure: str) -> Sample:
        """Return what became of the request, with the tokens that the server counted.

        Raises:
            ProtocolError: the events with the counts cannot be read.
        """
        arrivals = array("q", self.arrivals_ns)
        usage = events.decode(self._usage or self._last).usage if arrivals else None
        first = events.decode(self._first).usage if arrivals else None
        tokens = usage.completion_tokens if usage else 0
        if arrivals and not failure and self._last_is_only_the_end(tokens):
            arrivals = arrivals[:-1]
        one_each = tokens == len(arrivals)
        return Sample(
            role=self.role,
            slot=self.slot,
            started_ns=self.started_ns,
            arrivals_ns=arrivals,
            ended_ns=ended_ns,
            tokens=tokens or len(arrivals),
            tokens_known=tokens > 0,
            first_tokens=max(1, first.completion_tokens) if first else 1,
            first_tokens_known=first is not None or one_each,
            prompt_tokens=usage.prompt_tokens if usage else None,
            bundles=tuple(self.bundles),
            failure=failure,
            retried_for=self.retried_for,
        )

    def _last_is_only_the_end(self, tokens: int) -> bool:
        """Tell whether the last chunk carries no token: some servers put the finish reason into one of its own."""
        last = events.decode(self._last)
        if len(self.arrivals_ns) < 2 or not last.choices:
            return False
        if last.choices[0].has_text or not last.choices[0].finish_reason:
            return False
        before = events.decode(self._before_last)
        if last.usage and before.usage:
            return last.usage.completion_tokens == before.usage.completion_tokens
        return tokens < len(self.arrivals_ns)  # also where the server tells no count: an end without text is no token

    def broken(self, ended_ns: int, failure: str) -> Sample:
        """Return a sample of a request that failed before its response was complete."""
        try:
            return self.sample(ended_ns, failure)
        except ProtocolError:
            self.arrivals_ns = []
            return self.sample(ended_ns, failure)


def _text(content: bytes) -> str:
    """Return bytes of whatever kind as one printable line."""
    text = " ".join(content.decode(errors="replace").split())[:300]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
