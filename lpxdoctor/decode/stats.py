"""A recording in, distributions, throughput and the client's own error bound out; pure arithmetic."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lpxdoctor.decode.profile import ClientBound, Distribution
from lpxdoctor.decode.samples import Recording, Role, Sample

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
# A chunk that shares its time with another is told wrongly when they may lie apart by more than this share of a gap.
_BUNDLE_TOLERANCE = 0.05
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
    client: ClientBound


def measured(rung: Recording) -> Measured:
    """Turn a rung's samples into numbers: latencies of the counted requests, throughput of all in the steady window."""
    good = [sample for sample in rung.samples if sample.role is Role.COUNTED and not sample.failure]
    itl_ms = sorted(gap for sample in good for gap in gaps_ms(sample))
    ttft_ms = sorted((sample.arrivals_ns[0] - sample.started_ns) / 1e6 for sample in good)
    tpot_ms = sorted(tpot for sample in good if (tpot := tpot_of(sample)) is not None)
    window = steady_window(rung)
    rate = tokens_in(rung.samples, *window) / (window[1] - window[0]) * 1e9 if window else None
    tokens = _mean([sample.tokens for sample in good])
    return Measured(
        ttft=distribution(ttft_ms),
        itl=distribution(itl_ms),
        tpot=distribution(tpot_ms),
        output_tokens_per_s=rate,
        requests_per_s=rate / tokens if rate is not None and tokens else None,
        prompt_tokens=_mean([sample.prompt_tokens for sample in good if sample.prompt_tokens is not None]),
        output_tokens=tokens,
        tokens_per_chunk=_tokens_per_chunk(good),
        window_s=(window[1] - window[0]) / 1e9 if window else None,
        client=client_bound(rung, ttft_ms, itl_ms, tpot_ms),
    )


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


def steady_window(rung: Recording) -> tuple[int, int] | None:
    """Return when every slot was at its counted work and none had run out, in nanoseconds; None if never.

    It opens when the last slot sends its first counted request (all have had tokens before, in their warm-up), and
    closes with the last token of the last counted one: until then cool-down requests keep all slots busy.
    """
    counted = [sample for sample in rung.samples if sample.role is Role.COUNTED]
    first: dict[int, int] = {}
    for sample in counted:
        first[sample.slot] = min(sample.started_ns, first.get(sample.slot, sample.started_ns))
    ends = [sample.arrivals_ns[-1] for sample in counted if sample.arrivals_ns and not sample.failure]
    if len(first) < rung.concurrency or not ends or max(ends) <= max(first.values()):
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


def client_bound(
    rung: Recording, ttft_ms: Sequence[float], itl_ms: Sequence[float], tpot_ms: Sequence[float]
) -> ClientBound:
    """Bound what the client's own lateness can have done to each metric; the values are sorted."""
    client = rung.client
    lags, sends = sorted(client.lags_ns), sorted(client.sends_ns)
    lag_p99_ms = percentile(lags, 0.99) / 1e6 if lags else None
    send_p99_ms = percentile(sends, 0.99) / 1e6 if sends else None
    # With the kernel's receive times a late reading moves nothing; without, an arrival is as uncertain as it is late.
    stamp_ms = client.clock_step_ns / 1e6 if client.kernel_clock else (lag_p99_ms or 0.0)
    gap_ms = percentile(itl_ms, 0.5) if itl_ms else 0.0
    late = [b for b in client.bundles if b.span_ns / 1e6 > _BUNDLE_TOLERANCE * gap_ms]
    longest_ms = max((b.span_ns for b in late), default=0) / 1e6
    later_tokens = max(1.0, rung.output_len - 1.0)
    errors = {
        "ttft": _shifted(ttft_ms, sum(b.has_first for b in late), stamp_ms + (send_p99_ms or 0.0)),
        "itl": _shifted(itl_ms, sum(b.chunks for b in late), stamp_ms),
        "tpot": _shifted(tpot_ms, 0, (longest_ms + stamp_ms) / later_tokens),
    }
    shares = [share for _, share in errors.values() if share is not None]
    idle_share = client.idle_ns / max(1, client.wall_ns * rung.concurrency)
    return ClientBound(
        clock="kernel" if client.kernel_clock else "program",
        reads=client.reads,
        bundled_share=len(client.bundles) / client.reads if client.reads else 0.0,
        read_delay_p99_ms=lag_p99_ms,
        longest_turn_ms=client.longest_turn_ns / 1e6,
        send_p99_ms=send_p99_ms,
        idle_share=idle_share,
        cpu_share=client.cpu_ns / max(1, client.wall_ns),
        clock_step_ms=client.clock_step_ns / 1e6,
        error_ms={name: bound for name, (bound, _) in errors.items()},
        worst_share=max([*shares, idle_share]) if shares else None,
    )


def _shifted(ordered: Sequence[float], wrong: int, each_ms: float) -> tuple[float | None, float | None]:
    """Return the largest error over the percentiles, in milliseconds and in relation to the percentile.

    When so many of the values may be anything, the true percentile still lies between those as many ranks below and
    above; each_ms is what any value may be off besides.
    """
    if not ordered:
        return None, None
    share = wrong / len(ordered)
    worst_ms = worst_share = 0.0
    for p in PERCENTILES.values():
        value = percentile(ordered, p)
        below, above = percentile(ordered, p - share), percentile(ordered, p + share)
        bound = max(value - below, above - value) + each_ms
        worst_ms = max(worst_ms, bound)
        worst_share = max(worst_share, bound / value if value > 0 else math.inf)
    return worst_ms, worst_share


def _tokens_per_chunk(samples: Sequence[Sample]) -> float | None:
    chunks = sum(len(sample.arrivals_ns) for sample in samples)
    return sum(sample.tokens for sample in samples) / chunks if chunks else None


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
