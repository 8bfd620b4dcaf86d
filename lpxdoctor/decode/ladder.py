"""Rungs so far and the site's policy in, why a ladder is to end here out: pure."""

from collections.abc import Iterable, Sequence

from lpxdoctor.decode.limits import Cause, answer_ms, limit
from lpxdoctor.decode.profile import Rung
from lpxdoctor.policy import Ladder as Policy


def doubling(most: int) -> tuple[int, ...]:
    """Return the powers of two up to most."""
    return tuple(1 << power for power in range(most.bit_length()))


def stop_reason(rungs: Sequence[Rung], policy: Policy) -> str:
    """Return why no rung is to follow the last one, "" when one may."""
    last = rungs[-1]
    asked = last.requests + last.errors
    if asked and last.errors > policy.errors_share * asked:
        kinds = ", ".join(f"{kind} {count}" for kind, count in last.errors_by_kind.items())
        return f"errors: {last.errors} of {asked} requests failed at {last.concurrency} at once ({kinds})"
    found = limit(last)
    if found:
        name = "cap: max_num_seqs reached" if found.cause is Cause.MAX_NUM_SEQS else "cap: KV cache full"
        return f"{name} at {last.concurrency} at once: {found.seen}"
    first, now = answer_ms(rungs[0]), answer_ms(last)
    if first and now and now > policy.latency_growth * first:
        return (
            f"latency: an answer took {now / first:.1f} times as long at {last.concurrency} at once "
            f"as at {rungs[0].concurrency}"
        )
    return ""


def memory_notes(rungs: Sequence[Rung], policy: Policy) -> Iterable[str]:
    """Yield the GPUs whose memory grew from the first rung to the last: what keeps growing ends in out of memory."""
    before = {gpu.index: gpu.memory_mib[0] for rung in reversed(rungs) for gpu in rung.gpus if gpu.memory_mib}
    after = {gpu.index: gpu.memory_mib[1] for rung in rungs for gpu in rung.gpus if gpu.memory_mib}
    for index, first in sorted(before.items()):
        if after[index] > first * (1 + policy.memory_growth):
            yield f"memory of GPU {index} grew from {first} to {after[index]} MiB over the run"
