"""What one rung of a run leaves behind: every request with its arrival times, and how late the client was."""

from array import array
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """Why a request was sent; only counted ones give latencies, all of them give load.

    A counted request that fails is an error, whatever comes of the one that is made in its place.
    """

    WARM_UP = "warm-up"
    COUNTED = "counted"
    COOL_DOWN = "cool-down"
    RETRY = "retry"


@dataclass(frozen=True)
class Bundle:
    """Chunks of one answer that a late client read at once, so that all have the last one's arrival time."""

    first: int  # index of the first of them among the answer's chunks
    chunks: int
    span_ns: int  # the first arrived at most so long before the last


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One request. All times are nanoseconds of the monotonic clock.

    arrivals_ns has one time per chunk that carried tokens; failure is "" or "kind: what was seen".
    """

    role: Role
    slot: int
    started_ns: int  # right before send()
    arrivals_ns: "array[int]"
    ended_ns: int
    tokens: int  # of the answer
    tokens_known: bool  # False: the server sent no usage, one token per chunk is assumed
    first_tokens: int  # of the first chunk
    first_tokens_known: bool  # False: one is assumed
    prompt_tokens: int | None  # as the server counted them
    bundles: tuple[Bundle, ...] = ()
    failure: str = ""
    retried_for: str = ""  # the kind of failure that this request was made again for

    @property
    def kind(self) -> str:
        """The kind of its failure, "" when it was answered."""
        return self.failure.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class Client:
    """How late the client was, from the first counted request to the end of the last."""

    kernel_clock: bool  # arrivals are the kernel's receive times; False: when the program got to see them
    reads: int  # that brought tokens
    lags_ns: "array[int]"  # per read: arrival to reading
    bundled: int  # reads that brought several chunks of one answer, sent or only read at once
    longest_turn_ns: int  # longest time the program did not ask for new arrivals
    sends_ns: "array[int]"  # per request: duration of send()
    idle_ns: int  # between one answer's end and the next request, over all slots
    cpu_ns: int
    wall_ns: int
    clock_step_ns: int  # how far the wall clock, in which the kernel stamps, was moved meanwhile


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Everything that one rung left behind."""

    concurrency: int
    asked: int  # counted requests that were to be made
    output_len: int
    samples: tuple[Sample, ...]
    client: Client
    resent: int = 0  # requests that met a connection which the server had just ended
    stopped: str = ""  # why it ended before all were made, "" when it did not
