"""Recordings as a run would leave them, made by hand: requests at known times, a client that was never late."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lpxdoctor.decode.samples import Client, Recording, Role, Sample

MS = 1_000_000
ON_TIME = Client(
    kernel_clock=True,
    reads=100,
    lags_ns=array("q", [50_000] * 100),
    bundled=0,
    longest_turn_ns=100_000,
    sends_ns=array("q", [20_000] * 10),
    idle_ns=0,
    cpu_ns=10 * MS,
    wall_ns=1000 * MS,
    clock_step_ns=0,
)


def sample(started_ms: float, arrivals_ms: Sequence[float], **changes: Any) -> Sample:
    """Return a counted request of slot 0 with one token per chunk."""
    arrivals = array("q", [round(at * MS) for at in arrivals_ms])
    made = Sample(
        role=Role.COUNTED,
        slot=0,
        started_ns=round(started_ms * MS),
        arrivals_ns=arrivals,
        ended_ns=arrivals[-1] if arrivals else round(started_ms * MS),
        tokens=len(arrivals),
        tokens_known=True,
        first_tokens=1,
        first_tokens_known=True,
        prompt_tokens=8,
    )
    return replace(made, **changes)


def steady(requests: int = 20, ttft_ms: float = 50, gap_ms: float = 10, tokens: int = 10) -> tuple[Sample, ...]:
    """Return one slot's requests, one right after the other."""
    length = ttft_ms + gap_ms * (tokens - 1)
    return tuple(
        sample(n * length, [n * length + ttft_ms + gap_ms * k for k in range(tokens)]) for n in range(requests)
    )


def recording(samples: Sequence[Sample], **changes: Any) -> Recording:
    """Return a rung at concurrency 1 with these requests."""
    made = Recording(concurrency=1, asked=len(samples), output_len=10, samples=tuple(samples), client=ON_TIME)
    return replace(made, **changes)
