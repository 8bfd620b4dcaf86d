"""A recording in, distributions and throughput out; pure arithmetic."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from lpxdoctor.decode.profile import Distribution
from lpxdoctor.decode.samples import Recording, Role, Sample

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
_Z95 = 1.959964


def percentile(ordered: Sequence[float], p: float) -> float:
    """Return the p-quantile (0..1) of sorted values by linear interpolation between neighbours."""
    position = min(max(p, 0.0), 1.0) * (len(ordered) - 1)
    below = int(position)
    if below + 1 >= len(ordered):
        return ordered[-1]
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (position - below)


def interval(ordered: Sequence[float], p: float) -> tuple[float | None, float | None]:
    """Return a 95 % confidence interval of the p-quantile, from the ranks that a binomial count would reach.

    It needs no shape of distribution, but independent samples. An end beyond the most extreme sample is None.
    """
    n = len(ordered)
    spread = _Z95 * math.sqrt(n * p * (1 - p))
    low, high = math.floor(n * p - spread), math.ceil(n * p + spread) + 1  # ranks, from 1
    return (ordered[low - 1] if low >= 1 else None, ordered[high - 1] if high <= n else None)


def distribution(values_ms: Iterable[float]) -> Distribution:
    """Summarise samples in milliseconds."""
    ordered = sorted(values_ms)
    n = len(ordered)
    at = {name: percentile(ordered, p) if n else None for name, p in PERCENTILES.items()}
    return Distribution(
        n=n,
        mean=math.fsum(ordered) / n if n else None,
        min=ordered[0] if n else None,
        p50=at["p50"],
        p95=at["p95"],
        p99=at["p99"],
        max=ordered[-1] if n else None,
        ci95={name: interval(ordered, p) if n else (None, None) for name, p in PERCENTILES.items()},
        too_few_for=tuple(name for name, p in PERCENTILES.items() if n * (1 - p) < 1 - 1e-9),
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A rung in numbers. Times in milliseconds, throughput per second; None where nothing was answered."""

    ttft: Distribution
    itl: Distribution
    tpot: Distribution
    output_tokens_per_s: float | None
    requests_per_s: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    tokens_per_chunk: float | None
    window_s: float | None


def measured(recording: Recording) -> Measured:
    """Turn samples into numbers: latencies of the counted requests, throughput of all in the steady window."""
    good = [sample for sample in recording.samples if sample.role is Role.COUNTED and not sample.failure]
    window = steady_window(recording)
    rate = tokens_in(recording.samples, *window) / (window[1] - window[0]) * 1e9 if window else None
    tokens = _mean([sample.tokens for sample in good])
    return Measured(
        ttft=distribution(ttft_of(sample) for sample in good),
        itl=distribution(chain.from_iterable(map(gaps_ms, good))),
        tpot=distribution(tpot for sample in good if (tpot := tpot_of(sample)) is not None),
        output_tokens_per_s=rate,
        requests_per_s=rate / tokens if rate is not None and tokens else None,
        prompt_tokens=_mean([sample.prompt_tokens for sample in good if sample.prompt_tokens is not None]),
        output_tokens=tokens,
        tokens_per_chunk=_tokens_per_chunk(good),
        window_s=(window[1] - window[0]) / 1e9 if window else None,
    )


def ttft_of(sample: Sample) -> float:
    """Return the time to the first chunk with tokens, in milliseconds."""
    return (sample.arrivals_ns[0] - sample.started_ns) / 1e6


def gaps_ms(sample: Sample) -> list[float]:
    """Return the times between a request's chunks."""
    arrivals = sample.arrivals_ns
    return [(after - before) / 1e6 for before, after in pairwise(arrivals)]


def tpot_of(sample: Sample) -> float | None:
    """Return the time per output token in milliseconds, None when all tokens came at once.

    (last chunk - first chunk) / (tokens - tokens of the first chunk).
    """
    later = sample.tokens - sample.first_tokens
    if later <= 0 or len(sample.arrivals_ns) < 2:
        return None
    return (sample.arrivals_ns[-1] - sample.arrivals_ns[0]) / later / 1e6


def steady_window(recording: Recording) -> tuple[int, int] | None:
    """Return when every slot was at its counted work and none had run out, in nanoseconds; None if never.

    It opens when the last slot sends its first counted request (all have had tokens before, in their warm-up), and
    closes with the last token of the last counted one: until then cool-down requests keep all slots busy.
    """
    counted = [sample for sample in recording.samples if sample.role is Role.COUNTED]
    first: dict[int, int] = {}
    for sample in counted:
        first[sample.slot] = min(sample.started_ns, first.get(sample.slot, sample.started_ns))
    ends = [sample.arrivals_ns[-1] for sample in counted if sample.arrivals_ns and not sample.failure]
    if len(first) < recording.concurrency or not ends or max(ends) <= max(first.values()):
        return None
    return max(first.values()), max(ends)


def tokens_in(samples: Iterable[Sample], opened_ns: int, closed_ns: int) -> float:
    """Return how many tokens arrived after opened and until closed; chunks after the first hold equally many."""
    total = 0.0
    for sample in samples:
        arrivals = sample.arrivals_ns
        if not arrivals:
            continue
        if opened_ns < arrivals[0] <= closed_ns:
            total += sample.first_tokens
        if len(arrivals) > 1:
            later = bisect_right(arrivals, closed_ns, 1) - bisect_right(arrivals, opened_ns, 1)
            total += later * (sample.tokens - sample.first_tokens) / (len(arrivals) - 1)
    return total


def _tokens_per_chunk(samples: Sequence[Sample]) -> float | None:
    chunks = sum(len(sample.arrivals_ns) for sample in samples)
    return sum(sample.tokens for sample in samples) / chunks if chunks else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
