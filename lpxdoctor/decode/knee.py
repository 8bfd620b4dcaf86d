"""The rungs of a ladder in, where more requests at once stop paying and why out: pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from lpxdoctor.decode.limits import Cause, Limit, answer_ms, is_client_limited, limit, told
from lpxdoctor.decode.profile import Knee, Rung

# One-sided, 98 %. Repeats of a rung lie further apart than its own blocks tell: 2 % at least is taken for noise.
_Z98, _LEAST_NOISE = 2.054, 0.02
_MORE_A_CHUNK = 1.5  # tokens, in relation to the first rung
_BUNDLED = 0.3  # of the reads
_MEMORY_SHARE = 0.5  # of a step's growth; at most about 0.9 of the peak bandwidth can be had
_CLEAR_SHARES = (0.3, 0.7)
_ARITHMETIC_SHARE = 0.25  # less of a step's growth, and scheduling or sampling may be what grows
_QUEUED_SHARE = 0.7  # of the growth of an answer's time that is before its first token
_LATE_SHARE = 0.4
_STILL_TPOT = 1.2


@dataclass(frozen=True)
class _Why:
    cause: Cause
    confidence: str
    seen: tuple[str, ...]


_OPEN = _Why(Cause.STEP, "low", ("memory or arithmetic: name the model's config with --model-config to tell",))


def knee(rungs: Sequence[Rung]) -> Knee:
    """Find the knee of rungs in rising order.

    Rungs that cannot be compared are left out, but for what the engine itself counted in them.
    """
    usable = [rung for rung in rungs if rung.valid and rung.output_tokens_per_s]
    capped, held = _capped(rungs)
    below = [rung for rung in usable if capped is None or rung.concurrency < capped.concurrency]
    found = _confirmed(below)
    if capped and held and (found is None or _next_above(rungs, found) is capped):
        return _at_cap(rungs, capped, held)
    if found:
        why = _why(below, found)
        return Knee(
            concurrency=found.concurrency,
            cause=why.cause.value,
            confidence=why.confidence,
            evidence=(_beyond(found, _after(below, found)), *why.seen),
        )
    left_out = [rung.concurrency for rung in rungs if is_client_limited(rung)]
    if left_out and (not usable or max(left_out) > usable[-1].concurrency):
        return _client(usable, left_out)
    return Knee(concurrency=None, cause=Cause.NONE.value, confidence="high", evidence=tuple(_growing(usable)))


def _capped(rungs: Sequence[Rung]) -> tuple[Rung | None, Limit | None]:
    for rung in rungs:
        found = limit(rung)
        if found:
            return rung, found
    return None, None


def _next_above(rungs: Sequence[Rung], rung: Rung) -> Rung | None:
    return next((other for other in rungs if other.concurrency > rung.concurrency), None)


def _power(rung: Rung) -> float:
    """Return throughput / latency, up to a factor: in a closed loop throughput x latency is the concurrency."""
    return (rung.output_tokens_per_s or 0.0) ** 2 / rung.concurrency


def _noise(rung: Rung) -> float:
    """Return the relative standard error of a rung's throughput, from how far its answers' times lie apart.

    Requests that run together share a step's fate: only those of one slot count as independent.
    """
    samples = rung.samples
    if samples is None or not samples.tpot_ms or rung.output_tokens is None:
        return 2 * _LEAST_NOISE
    later = rung.output_tokens - 1
    times = [ttft + later * tpot for ttft, tpot in zip(samples.ttft_ms, samples.tpot_ms, strict=False)]
    spread = pstdev(times) / fmean(times)
    return math.hypot(_LEAST_NOISE, spread / math.sqrt(max(1.0, rung.requests / rung.concurrency)))


def _confirmed(rungs: Sequence[Rung]) -> Rung | None:
    """Return the rung of the greatest power, None while no later one is clearly below it."""
    if not rungs:
        return None
    best = max(rungs, key=_power)
    return best if any(_clearly_below(rung, best) for rung in rungs if rung.concurrency > best.concurrency) else None


def _clearly_below(rung: Rung, best: Rung) -> bool:
    return math.log(_power(best) / _power(rung)) > _Z98 * 2 * math.hypot(_noise(best), _noise(rung))


def _after(rungs: Sequence[Rung], found: Rung) -> list[Rung]:
    return [rung for rung in rungs if rung.concurrency > found.concurrency]


def _at_cap(rungs: Sequence[Rung], capped: Rung, held: Limit) -> Knee:
    """Return the knee at the engine's own limit: the largest rung that it ran whole."""
    fits = [rung.concurrency for rung in rungs if rung.concurrency < capped.concurrency]
    at = max(fits, default=held.running)
    what = "--max-num-seqs of the engine" if held.cause is Cause.MAX_NUM_SEQS else "the KV cache"
    return Knee(
        concurrency=at,
        cause=held.cause.value,
        confidence="high",
        evidence=(f"at {capped.concurrency} at once {held.seen}", f"{what} is the limit, not the GPU's speed"),
        engine_limit=held.running,
    )


def _why(rungs: Sequence[Rung], found: Rung) -> _Why:
    first, later = rungs[0], _after(rungs, found)
    late = _front_end(first, later[0])
    if late and _grew_before_first_token(found, later[0]) >= _LATE_SHARE:
        return late
    why = _queueing(found, later[-1]) or _step(first, later[-1]) or _OPEN
    return replace(why, seen=(*why.seen, *late.seen[:1])) if late else why


def _front_end(first: Rung, rung: Rung) -> _Why | None:
    """See whether the engine's API process sends late what the engine has long computed."""
    before, now = first.tokens_per_chunk, rung.tokens_per_chunk
    merged = before and now and now >= _MORE_A_CHUNK * before
    bundled = rung.client.bundled_share
    if not merged and not (bundled >= _BUNDLED and first.client.bundled_share < _BUNDLED / 3):
        return None
    how = f"{now:.1f} tokens a chunk" if merged and now else f"several chunks in {bundled:.0%} of the reads"
    idle = f"this client used {rung.client.cpu_share:.0%} of a core"
    seen = f"at {rung.concurrency} at once the server sent {how}, while {idle}: its API process is late"
    more = f"the first token took {rung.ttft_ms.p50 or 0:.0f} ms, {first.ttft_ms.p50 or 0:.0f} at {first.concurrency}"
    return _Why(Cause.FRONT_END, "medium", (seen, more))


def _grew_before_first_token(found: Rung, rung: Rung) -> float:
    """Return which share of an answer's longer time is before its first token, 0 where it is not longer."""
    before, now = answer_ms(found), answer_ms(rung)
    if not before or not now or now <= before:
        return 0.0
    return ((rung.ttft_ms.p50 or 0) - (found.ttft_ms.p50 or 0)) / (now - before)


def _queueing(found: Rung, rung: Rung) -> _Why | None:
    """See whether requests wait to be begun, where the engine has no gauges to tell it."""
    if told(rung) or _grew_before_first_token(found, rung) < _QUEUED_SHARE:
        return None
    if (rung.tpot_ms.p50 or 0) > _STILL_TPOT * (found.tpot_ms.p50 or 0):
        return None
    full = (rung.kv_cache_share or 0) >= 1
    waited = (rung.ttft_ms.p50 or 0) - (found.ttft_ms.p50 or 0)
    seen = f"at {rung.concurrency} at once the first token took {waited:.0f} ms longer and the others as long as before"
    return _Why(Cause.KV_CACHE if full else Cause.MAX_NUM_SEQS, "low", (seen, "the server has no gauges to confirm it"))


def _step(first: Rung, last: Rung) -> _Why | None:
    """Hold a step's growth against what reading memory explains of it."""
    low, high = first.ceiling, last.ceiling
    if low is None or high is None or low.step_ms is None or high.step_ms is None or high.step_ms <= low.step_ms:
        return None
    grew = high.step_ms - low.step_ms
    memory = high.weights_ms + high.kv_cache_ms - low.weights_ms - low.kv_cache_ms
    share = memory / grew
    seen = (
        f"from {first.concurrency} to {last.concurrency} at once a step grew by {grew:.2f} ms; "
        f"reading memory at full bandwidth explains {memory:.2f} of them"
    )
    if share >= _MEMORY_SHARE:
        return _Why(Cause.BANDWIDTH, "high" if share >= _CLEAR_SHARES[1] else "medium", (seen,))
    if low.compute_ms is None or high.compute_ms is None:
        return _Why(Cause.COMPUTE, "medium", (seen,))
    arithmetic = high.compute_ms - low.compute_ms
    sure = share <= _CLEAR_SHARES[0] and arithmetic >= _ARITHMETIC_SHARE * grew
    sums = f"arithmetic at its peak explains {arithmetic:.2f}, and the rest is work that every request brings"
    return _Why(Cause.COMPUTE, "high" if sure else "medium", (seen, sums))


def _beyond(found: Rung, later: Sequence[Rung]) -> str:
    after = later[0]
    tokens = (after.output_tokens_per_s or 0) / (found.output_tokens_per_s or 1) - 1
    before, now = answer_ms(found), answer_ms(after)
    longer = f", and an answer takes {now / before - 1:+.0%}" if before and now else ""
    return f"{after.concurrency} at once bring {tokens:+.0%} tokens/s over {found.concurrency}{longer}"


def _client(usable: Sequence[Rung], left_out: Sequence[int]) -> Knee:
    listed = ", ".join(map(str, left_out))
    return Knee(
        concurrency=usable[-1].concurrency if usable else None,
        cause=Cause.CLIENT.value,
        confidence="high",
        evidence=(f"this machine was too slow for {listed} at once: measure from another, or free its cores",),
    )


def _growing(usable: Sequence[Rung]) -> list[str]:
    if len(usable) < 2:
        return ["fewer than two rungs can be compared"]
    lines = [_beyond(usable[-2], usable[-1:])]
    sign = _front_end(usable[0], usable[-1])
    return [*lines, *(sign.seen if sign else ())]
