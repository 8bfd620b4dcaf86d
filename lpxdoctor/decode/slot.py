"""One of a rung's concurrent requests: its connection, what it is at, what it waits for and when that is too long."""

from dataclasses import dataclass

from lpxdoctor.decode.exchange import Exchange
from lpxdoctor.decode.samples import Role
from lpxdoctor.decode.transport import Transport

_CONNECT_TIMEOUT_S = 10
# Chunks of an answer that is far longer than what was asked for; some servers send one without a token before each.
_CHUNKS_PER_TOKEN, _SPARE_CHUNKS = 4, 100


@dataclass
class Slot:
    """One of the requests that are under way at once, with its connection."""

    index: int
    prompt: bytes
    transport: Transport | None = None
    exchange: Exchange | None = None
    work: tuple[Role, int] | None = None
    retries: int = 0  # of the request under way, or of the one to be made again
    again_for: str = ""  # the kind of failure that it is to be made again for, "" when it is not
    retried_for: str = ""  # that it has been made again for
    awaited_since_ns: int = 0  # 0: nothing is awaited
    interest: int = 0  # what the selector watches its socket for

    def trouble(self, now_ns: int, timeout_ns: int) -> str:
        """Return what fails the request under way, as "kind: what was seen", "" when nothing does."""
        if not self.awaited_since_ns:
            return ""
        silent_ns = now_ns - self.awaited_since_ns
        if self.exchange is None:
            return f"connect: no answer within {_CONNECT_TIMEOUT_S} s" if silent_ns > _CONNECT_TIMEOUT_S * 1e9 else ""
        chunks, tokens = len(self.exchange.arrivals_ns), self.work[1] if self.work else 0
        if chunks > _CHUNKS_PER_TOKEN * tokens + _SPARE_CHUNKS:
            return f"endless: {tokens} tokens were asked for, and the stream goes on after {chunks} chunks"
        if silent_ns > timeout_ns:
            return f"stall: nothing came for {silent_ns / 1e9:.1f} s after {chunks} chunks"
        return ""
