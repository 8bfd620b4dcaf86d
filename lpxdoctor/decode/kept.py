"""The parts of a profile that a later comparison judges by: samples of a rung, variance between repeats."""

import msgspec


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison resamples of a rung: its counted requests in the order in which they were sent, and its time.

    Of more than two thousand requests every n-th is kept.
    """

    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float, ...]  # requests whose tokens came all at once have none
    block_s: float | None  # the steady window in equal parts; None where there was no such time
    block_tokens: tuple[float, ...]  # that arrived in each part, of all requests


class RunVariance(msgspec.Struct, frozen=True, kw_only=True):
    """How far repeats lie apart: the variance of one in relation to the mean of its rung, pooled over all rungs."""

    variance: float
    degrees: int  # of freedom: repeats less one, summed over the rungs
