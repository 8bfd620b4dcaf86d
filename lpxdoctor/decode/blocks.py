"""A recording in, what a later comparison resamples out: requests in their order, tokens by time; pure arithmetic."""

from collections.abc import Sequence
from itertools import pairwise

from lpxdoctor.decode.kept import Samples
from lpxdoctor.decode.samples import Recording, Role
from lpxdoctor.decode.stats import steady_window, tokens_in, tpot_of, ttft_of

TIME_BLOCKS = 16
_MOST = 2000
_DIGITS = 4  # of a millisecond: 100 ns, below what any clock here tells


def kept(recording: Recording) -> Samples:
    """Return the samples of a rung as its profile keeps them."""
    good = [sample for sample in recording.samples if sample.role is Role.COUNTED and not sample.failure]
    good.sort(key=lambda sample: sample.started_ns)
    window = steady_window(recording)
    blocks: list[float] = []
    if window:
        edges = [window[0] + (window[1] - window[0]) * n // TIME_BLOCKS for n in range(TIME_BLOCKS + 1)]
        blocks = [tokens_in(recording.samples, *pair) for pair in pairwise(edges)]
    return Samples(
        ttft_ms=_thinned([ttft_of(sample) for sample in good]),
        tpot_ms=_thinned([tpot for sample in good if (tpot := tpot_of(sample)) is not None]),
        block_s=(window[1] - window[0]) / TIME_BLOCKS / 1e9 if window else None,
        block_tokens=tuple(round(tokens, 1) for tokens in blocks),
    )


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    step = -(-len(values) // _MOST) or 1
    return tuple(round(value, _DIGITS) for value in values[::step])
