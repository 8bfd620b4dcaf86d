"""Latency targets as typed, and rungs, in; the largest concurrency that holds them out: pure."""

import re
from collections.abc import Mapping, Sequence

from lpxdoctor.decode.front_end import late
from lpxdoctor.decode.profile import Distribution, Rung, Slo, SloRung
from lpxdoctor.errors import UsageError

PERCENTILE = "p95"
# So many requests without one beyond the target prove its 95th percentile with 95 % confidence: 0.95^59 < 0.05.
PROOF_REQUESTS = 59
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0, "": 1.0}
_METRICS = ("ttft", "tpot")
_TARGET = re.compile(r"\s*([a-z]+)\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\s*(us|ms|s|)\s*")


def targets(text: str) -> dict[str, float]:
    """Read "tpot=20ms,ttft=500ms" as milliseconds by metric.

    Raises:
        UsageError: it is not written so, names another metric, or one twice, or is not above 0.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        read = _TARGET.fullmatch(part)
        if read is None or read[1] not in _METRICS:
            raise UsageError(f"{part.strip()[:40]!r} is no target; write --slo tpot=20ms,ttft=500ms (us, ms or s).")
        if read[1] in found:
            raise UsageError(f"--slo names {read[1]} twice.")
        found[read[1]] = float(read[2]) * _UNITS_MS[read[3]]
        if not found[read[1]] > 0:
            raise UsageError(f"--slo {part.strip()}: nothing takes no time.")
    return found


def judged(rungs: Sequence[Rung], targets_ms: Mapping[str, float]) -> Slo:
    """Hold every rung against the targets; a rung that cannot be compared holds none."""
    rising = sorted(rungs, key=lambda rung: rung.concurrency)
    made = tuple(_rung(rung, rising[0], targets_ms) for rung in rising)
    sure = [rung.concurrency for rung in made if rung.holds == "yes"]
    likely = [rung.concurrency for rung in made if rung.holds == "likely"]
    return Slo(
        percentile=PERCENTILE,
        targets_ms=dict(targets_ms),
        concurrency=max(sure or likely, default=None),
        confident=bool(sure),
        rungs=made,
    )


def _rung(rung: Rung, first: Rung, targets_ms: Mapping[str, float]) -> SloRung:
    if not rung.valid:
        why = (rung.invalid_because or "").partition(":")[0]
        return SloRung(concurrency=rung.concurrency, holds="no", because=f"cannot be relied on: {why}")
    metrics: dict[str, Distribution] = {"ttft": rung.ttft_ms, "tpot": rung.tpot_ms}
    verdicts = [_metric(name, metrics[name], target) for name, target in targets_ms.items()]
    worst = min(verdicts, key=lambda verdict: ("no", "likely", "yes").index(verdict[0]))
    sign = late(first, rung) if worst[0] == "no" else None
    why = f"{worst[1]}; the server's API process is late there, not the engine" if sign and sign.proved else worst[1]
    return SloRung(concurrency=rung.concurrency, holds=worst[0], because=why)


def _metric(name: str, seen: Distribution, target: float) -> tuple[str, str]:
    at, top = seen.p95, seen.ci95[PERCENTILE][1]
    if at is None or seen.max is None:
        return "no", f"{name} was not measured"
    if at > target:
        return "no", f"{PERCENTILE} of {name} is {at:.4g} ms, over {target:g}"
    if (top is not None and top <= target) or (seen.max <= target and seen.n >= PROOF_REQUESTS):
        return "yes", f"{PERCENTILE} of {name} is {at:.4g} ms, and below {target:g} with 95% confidence"
    if top is not None:
        return "likely", f"{PERCENTILE} of {name} is {at:.4g} ms, and may be {top:.4g}"
    return "likely", f"{PERCENTILE} of {name} is {at:.4g} ms of {seen.n} requests, too few to be sure"
