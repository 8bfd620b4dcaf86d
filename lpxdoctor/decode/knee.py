"""The rungs of a ladder in, where more requests at once stop paying and why out: pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

import msgspec

from lpxdoctor.decode.front_end import is_cause, late
from lpxdoctor.decode.limits import Cause, Limit, answer_ms, is_client_limited, limit, told
from lpxdoctor.decode.profile import Knee, Rung

# One-sided, 98 %. Repeats of a rung lie further apart than its own blocks tell: 2 % at least is taken for noise.
_Z98, _LEAST_NOISE = 2.054, 0.02
_MEMORY_SHARE = 0.5  # of a step's growth; at most about 0.9 of the peak bandwidth can be had
_CLEAR_SHARES = (0.3, 0.7)
_ARITHMETIC_SHARE = 0.25  # less of a step's growth, and scheduling or sampling may be what grows
_QUEUED_SHARE = 0.7  # of the growth of an answer's time that is before its first token
_STILL_TPOT = 1.2


@dataclass(frozen=True)
class _Why:
    cause: Cause
    confidence: str
    seen: tuple[str, ...]


_OPEN = _Why(Cause.STEP, "low", ("memory or arithmetic: name the model's config with --model-config to tell",))


_ADVICE: Mapping[Cause, tuple[str, ...]] = {
    Cause.FRONT_END: (
        "--api-server-count 4: as many processes share what one does now, with a core for each",
        "--stream-interval 4: chunks of four tokens cost a quarter of the work; gaps between them are longer",
        "lpxdoctor tune --only front-end starts the engine with each of them and measures it",
    ),
    Cause.MAX_NUM_SEQS: ("--max-num-seqs with more: requests wait while the KV cache has room",),
    Cause.KV_CACHE: ("--kv-cache-dtype fp8 or a shorter --max-model-len: see lpxdoctor plan for what fits",),
    Cause.BANDWIDTH: ("weights or KV cache in fewer bits are less to read: see lpxdoctor plan",),
}


def knee(rungs: Sequence[Rung]) -> Knee:
    """Find the knee of rungs in rising order, its cause, and what may move it.

    Rungs that cannot be compared are left out, but for what the engine itself counted in them.
    """
    found = _found(rungs)
    return msgspec.structs.replace(found, advice=found.advice or _ADVICE.get(Cause(found.cause), ()))


def _found(rungs: Sequence[Rung]) -> Knee:
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
    sign = late(usable[0], usable[-1]) if usable else None
    return Knee(
        concurrency=None,
        cause=Cause.NONE.value,
        confidence="high",
        evidence=(*_growing(usable), *(sign.seen if sign else ())),
        advice=_ADVICE[Cause.FRONT_END] if sign else (),
    )


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
    sign = late(first, later[0])
    if sign and is_cause(sign, found, later[0]):
        return _Why(Cause.FRONT_END, "high" if sign.proved else "medium", sign.seen)
    why = _queueing(found, later[-1]) or _step(first, later[-1]) or _OPEN
    return replace(why, seen=(*why.seen, *sign.seen[:1])) if sign else why


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
    return [_beyond(usable[-2], usable[-1:])]
