"""A rung in, what held requests back in it by the engine's own count, and how long an answer took, out: pure."""

from dataclasses import dataclass
from enum import Enum

from lpxdoctor.decode.profile import Rung

_LEAST_SAMPLES = 3
_STEADY_SHARE = 0.8  # of the samples
_FULL = 0.9  # of the KV cache; vLLM gives whole blocks, and a request's next one may not fit into the rest
_SAME_SHARE = 0.02
_ENDED_AT_ONCE = 2  # times as many as end in a mean step: so many places may be free when the gauges are read
_PREEMPTED_SHARE = 0.01  # of the requests


class Cause(Enum):
    """What ends the growth of throughput."""

    BANDWIDTH = "bandwidth"
    COMPUTE = "compute"
    STEP = "bandwidth or compute"  # steps take longer, and without the model's config it stays open why
    MAX_NUM_SEQS = "max_num_seqs"
    KV_CACHE = "kv-cache"
    FRONT_END = "front end"
    CLIENT = "client"
    NONE = "none yet"


@dataclass(frozen=True)
class Limit:
    """Requests waited for others to end: why, how many ran at once (None: not told), and what was seen."""

    cause: Cause
    running: int | None
    seen: str


def limit(rung: Rung) -> Limit | None:
    """Return what the engine's gauges and counters say held requests back, None when nothing did or none are there."""
    load, preempted = rung.load, (rung.engine.preemptions if rung.engine else None) or 0
    if preempted and preempted >= _PREEMPTED_SHARE * rung.requests:
        running = round(load.running_max) if load else None
        full = f", {load.kv_cache_max:.0%} of it in use" if load and load.kv_cache_max is not None else ""
        return Limit(Cause.KV_CACHE, running, f"the KV cache was full{full}: {preempted:.0f} requests preempted")
    if load is None or not load.waiting_p50 or not told(rung) or load.waiting_share < _STEADY_SHARE:
        return None
    most = load.running_max
    running = round(most)
    seen = f"the engine ran {running} at once and {load.waiting_p50:.0f} waited"
    if load.kv_cache_p50 is not None and load.kv_cache_p50 >= min(_FULL, 1 - _one_request(rung)):
        return Limit(Cause.KV_CACHE, running, f"{seen}, with {load.kv_cache_p50:.0%} of the KV cache in use")
    free = max(1, _SAME_SHARE * most, _ENDED_AT_ONCE * most / (rung.output_tokens or 1))
    if most - load.running_p50 <= free and most < rung.concurrency:
        cache = f", with {load.kv_cache_p50:.0%} of the KV cache in use" if load.kv_cache_p50 is not None else ""
        return Limit(Cause.MAX_NUM_SEQS, running, seen + cache)
    return None  # not a fixed number: they wait for their prompts' turn


def told(rung: Rung) -> bool:
    """Tell whether the engine's gauges were read often enough to judge by them."""
    return rung.load is not None and rung.load.samples >= _LEAST_SAMPLES


def _one_request(rung: Rung) -> float:
    """Return a request's share of the KV cache at its full length, 0 where it is not known."""
    return (rung.kv_cache_share or 0.0) / rung.concurrency


def answer_ms(rung: Rung) -> float | None:
    """Return the median time of a whole answer, None where nothing was answered."""
    if rung.ttft_ms.p50 is None or rung.output_tokens is None:
        return None
    return rung.ttft_ms.p50 + (rung.output_tokens - 1) * (rung.tpot_ms.p50 or 0.0)


def is_client_limited(rung: Rung) -> bool:
    """Tell whether the machine that measured was too slow for the rung."""
    return "client-limited" in (rung.invalid_because or "")
