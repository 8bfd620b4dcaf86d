"""Samples in, what they add up to so far out: for the progress shown, and for what is still to be asked."""

from collections.abc import Iterable

from lpxdoctor.decode.exchange import Exchange
from lpxdoctor.decode.hooks import Progress
from lpxdoctor.decode.samples import Role, Sample


class Tally:
    """The samples of a rung under way."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._answered = self._failed = 0  # of the counted ones
        self._tokens = self._chunks = 0

    def record(self, sample: Sample) -> None:
        """Take a request that has ended."""
        self.samples.append(sample)
        if not sample.failure:
            self._tokens += sample.tokens
            self._chunks += len(sample.arrivals_ns)
        if sample.role is Role.COUNTED:
            self._failed += bool(sample.failure)
            self._answered += not sample.failure

    def least_received(self, exchanges: Iterable[Exchange | None]) -> int:
        """Return how many tokens the youngest counted request has had, as far as its chunks tell."""
        under_way = [exchange for exchange in exchanges if exchange and exchange.role is Role.COUNTED]
        chunks = min((len(exchange.arrivals_ns) for exchange in under_way), default=0)
        return chunks * self._tokens // self._chunks if self._chunks else chunks

    def progress(self, concurrency: int, asked: int) -> Progress:
        """Return how far the rung has come."""
        return Progress(concurrency=concurrency, answered=self._answered, failed=self._failed, asked=asked)
