"""A recording in, how far the client's own lateness can have distorted each metric out; pure arithmetic.

A chunk that a late client read together with later ones arrived somewhere within its bundle's span. So each metric is
computed with all those chunks as early, and as late, as they can have been: the true percentiles lie between.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from lpxdoctor.decode.profile import ClientBound, Distribution
from lpxdoctor.decode.samples import Recording, Role, Sample
from lpxdoctor.decode.stats import PERCENTILES, gaps_ms, percentile, tpot_of, ttft_of

Values = Callable[[Sample], Iterable[float]]  # of one metric, in milliseconds


def client_bound(recording: Recording, ttft: Distribution, itl: Distribution, tpot: Distribution) -> ClientBound:
    """Bound the client's part in the percentiles of a recording's counted requests."""
    client = recording.client
    lags, sends = sorted(client.lags_ns), sorted(client.sends_ns)
    lag_ms = percentile(lags, 0.99) / 1e6 if lags else None
    send_ms = percentile(sends, 0.99) / 1e6 if sends else None
    # With the kernel's receive times a late reading moves nothing; without, an arrival is as uncertain as it is late.
    stamp_ms = client.clock_step_ns / 1e6 if client.kernel_clock else (lag_ms or 0.0)
    good = [sample for sample in recording.samples if sample.role is Role.COUNTED and not sample.failure]
    errors = {
        "ttft": _error(good, ttft, (_ttft_at_least,), stamp_ms + (send_ms or 0.0)),
        "itl": _error(good, itl, (_gaps_at_least, _gaps_at_most), stamp_ms),
        "tpot": _error(good, tpot, (_tpot_at_most,), stamp_ms / recording.output_len),
    }
    idle_share = client.idle_ns / max(1, client.wall_ns * recording.concurrency)
    shares = [share for _, share in errors.values() if share is not None]
    return ClientBound(
        clock="kernel" if client.kernel_clock else "program",
        reads=client.reads,
        bundled_share=client.bundled / client.reads if client.reads else 0.0,
        read_delay_p99_ms=lag_ms,
        longest_turn_ms=client.longest_turn_ns / 1e6,
        send_p99_ms=send_ms,
        idle_share=idle_share,
        cpu_share=client.cpu_ns / max(1, client.wall_ns),
        clock_step_ms=client.clock_step_ns / 1e6,
        error_ms={name: error for name, (error, _) in errors.items()},
        worst_share=max([*shares, idle_share]) if shares else None,
    )


def _error(
    samples: Sequence[Sample], recorded: Distribution, extremes: tuple[Values, ...], each_ms: float
) -> tuple[float | None, float | None]:
    """Return the largest error over the percentiles, in milliseconds and in relation to the percentile.

    extremes give the values that a metric may really have had; each_ms is what any value may be off besides.
    Percentiles with too few samples are left out: one late read would move them as far as the next sample. A percentile
    below the mean is held against the mean: where a server sends in bursts most gaps are next to nothing.
    """
    told = {"p50": recorded.p50, "p95": recorded.p95, "p99": recorded.p99}
    seen = {PERCENTILES[name]: at for name, at in told.items() if at is not None and name not in recorded.too_few_for}
    if not seen:
        return None, None
    moved = [0.0] * len(seen)
    late = [sample for sample in samples if sample.bundles]
    if late:
        others = sorted(value for sample in samples if not sample.bundles for value in extremes[0](sample))
        for values in extremes:
            ordered = sorted([*others, *(value for sample in late for value in values(sample))])
            moved = [max(far, abs(percentile(ordered, p) - seen[p])) for p, far in zip(seen, moved, strict=True)]
    errors = [far + each_ms for far in moved]
    mean = recorded.mean or math.inf
    return max(errors), max(error / max(at, mean) for error, at in zip(errors, seen.values(), strict=True))


def _ttft_at_least(sample: Sample) -> Iterable[float]:
    early_ns = sum(bundle.span_ns for bundle in sample.bundles if bundle.first == 0)
    return (max(0.0, ttft_of(sample) - early_ns / 1e6),)


def _tpot_at_most(sample: Sample) -> Iterable[float]:
    recorded = tpot_of(sample)
    if recorded is None:
        return ()
    early_ns = sum(bundle.span_ns for bundle in sample.bundles if bundle.first == 0)
    return (recorded + early_ns / 1e6 / (sample.tokens - sample.first_tokens),)


def _gaps_at_least(sample: Sample) -> Iterable[float]:
    gaps = gaps_ms(sample)
    for bundle in sample.bundles:
        if bundle.first:
            gaps[bundle.first - 1] = max(0.0, gaps[bundle.first - 1] - bundle.span_ns / 1e6)
    return gaps


def _gaps_at_most(sample: Sample) -> Iterable[float]:
    """Spread each bundle's span: of gaps that add up to it, the n-th largest is at most its n-th part."""
    gaps = gaps_ms(sample)
    for bundle in sample.bundles:
        inside = range(bundle.first, min(bundle.first + bundle.chunks - 1, len(gaps)))
        for nth, index in enumerate(inside, start=1):
            gaps[index] = bundle.span_ns / 1e6 / nth
    return gaps
