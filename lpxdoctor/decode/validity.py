"""A recording, the engine's counters and the GPUs' samples in; the judged rung out: pure."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lpxdoctor.decode import blocks
from lpxdoctor.decode.answers import answer_reasons
from lpxdoctor.decode.bounds import client_bound
from lpxdoctor.decode.profile import ClientBound, EngineDelta, GpuUse, Rung
from lpxdoctor.decode.samples import Recording, Role, Sample
from lpxdoctor.decode.stats import Measured, measured

_CLIENT_SHARE = 0.05  # of a metric: more than this and the client may be what was measured
_CLIENT_CPU_SHARE = 0.8  # of a core
_CLOCK_STEP_MS = 0.1
_PREFIX_HIT_RATE = 0.01
_FOREIGN_TOKENS_SHARE = 0.01
_MEMORY_GROWTH = 0.01
_ONE_TOKEN = 1.01  # tokens per chunk


def judge(
    recording: Recording,
    *,
    engine: EngineDelta | None,
    gpus: tuple[GpuUse, ...],
    kv_cache_tokens: int | None,
    block_size: int | None,
    input_len: int | None,
    gpus_unread: str = "",
) -> Rung:
    """Return the rung as the profile keeps it, with every reason why it cannot be compared.

    input_len is how many token ids each prompt had, None when text was sent. gpus_unread is why the GPUs, which could
    be read, were not to the end.
    """
    numbers = measured(recording)
    client = client_bound(recording, numbers.ttft, numbers.itl, numbers.tpot)
    counted = [sample for sample in recording.samples if sample.role is Role.COUNTED]
    failed, good = ([sample for sample in counted if bool(sample.failure) is failed] for failed in (True, False))
    of_run = _reasons(recording, numbers, client, failed, engine, gpus, gpus_unread)
    reasons = (*of_run, *answer_reasons(good, recording.output_len))
    return Rung(
        concurrency=recording.concurrency,
        requests=len(counted) - len(failed),
        **_failures(recording, failed),
        ttft_ms=numbers.ttft,
        itl_ms=numbers.itl,
        tpot_ms=numbers.tpot,
        output_tokens_per_s=numbers.output_tokens_per_s,
        requests_per_s=numbers.requests_per_s,
        prompt_tokens=numbers.prompt_tokens,
        output_tokens=numbers.output_tokens,
        tokens_per_chunk=numbers.tokens_per_chunk,
        window_s=numbers.window_s,
        kv_cache_share=_kv_cache_share(recording, numbers, kv_cache_tokens, block_size),
        valid=not reasons,
        invalid_because="; ".join(reasons) or None,
        notes=(*_answer_notes(recording, numbers, good, input_len), *_surrounding_notes(recording, engine, gpus)),
        client=client,
        engine=engine,
        gpus=gpus,
        samples=blocks.kept(recording),
    )


def _failures(recording: Recording, failed: list[Sample]) -> dict[str, Any]:
    """Return the rung's fields that tell of counted requests that failed, and of those made in their place."""
    retries = [sample for sample in recording.samples if sample.role is Role.RETRY]
    return {
        "errors": len(failed),
        "errors_by_kind": dict(Counter(sample.kind for sample in failed)),
        "error_examples": {sample.kind: sample.failure for sample in reversed(failed)},
        "retries": dict(Counter(sample.retried_for for sample in retries)),
        "retries_answered": sum(not sample.failure for sample in retries),
    }


def _reasons(
    recording: Recording,
    numbers: Measured,
    client: ClientBound,
    failed: list[Sample],
    engine: EngineDelta | None,
    gpus: tuple[GpuUse, ...],
    gpus_unread: str,
) -> Iterator[str]:
    if recording.stopped:
        yield f"ended early: {recording.stopped}"
    if failed:
        kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(sample.kind for sample in failed).items())
        yield f"{len(failed)} of {recording.asked} requests failed ({kinds}): the numbers are those of the others"
    elif numbers.window_s is None:
        yield "no time in which all requests were under way at once"
    yield from _client_limits(client)
    if client.clock_step_ms > _CLOCK_STEP_MS:
        yield f"the wall clock was set meanwhile, by {client.clock_step_ms:.3f} ms"
    if engine and (engine.prefix_cache_hit_rate or 0) >= _PREFIX_HIT_RATE:
        yield f"{engine.prefix_cache_hit_rate:.1%} of the prompt tokens came from the prefix cache"
    if engine and engine.generation_tokens is not None and not failed and not recording.stopped:
        foreign = engine.generation_tokens - engine.received_tokens
        if foreign > _FOREIGN_TOKENS_SHARE * engine.received_tokens:
            yield f"the engine served others at the same time ({foreign:.0f} tokens that are not ours)"
    for gpu in gpus:
        yield from _gpu_reasons(gpu)
    if gpus_unread:
        yield f"the GPUs could not be read to the end: {gpus_unread}"


def _gpu_reasons(gpu: GpuUse) -> Iterator[str]:
    for reason, share in gpu.slowed_share.items():
        yield f"GPU {gpu.index} was slowed down ({reason}) in {share:.0%} of the samples"
    if gpu.xids:
        yield f"GPU {gpu.index} reported Xid {', '.join(str(code) for code in sorted(set(gpu.xids)))}"
    if (gpu.process_groups or 0) > 1:
        yield f"GPU {gpu.index} was shared: {gpu.process_groups} unrelated groups of processes have memory on it"


def _client_limits(client: ClientBound) -> Iterator[str]:
    if client.worst_share is None:
        return
    if client.idle_share > _CLIENT_SHARE:
        yield f"client-limited: {client.idle_share:.0%} of the time no next request had been sent"
    elif client.worst_share > _CLIENT_SHARE:
        bounds = ", ".join(f"{name} by {error:.2f} ms" for name, error in client.error_ms.items() if error)
        yield f"client-limited: this machine was too late to tell a metric within 5% (off at most: {bounds})"
    elif client.cpu_share > _CLIENT_CPU_SHARE:
        yield f"client-limited: the client used {client.cpu_share:.0%} of a core"


def _answer_notes(recording: Recording, numbers: Measured, good: list[Sample], input_len: int | None) -> Iterator[str]:
    short = sum(sample.tokens < recording.output_len for sample in good)
    if short:
        yield f"{short} of {len(good)} answers have fewer than {recording.output_len} tokens: the server ended them"
    if any(not sample.tokens_known for sample in good):
        yield "the server sends no token counts: one token per chunk is assumed"
    elif numbers.tokens_per_chunk and numbers.tokens_per_chunk > _ONE_TOKEN:
        yield f"{numbers.tokens_per_chunk:.2f} tokens per chunk: ITL is per chunk, TPOT per token"
        untold = sum(not sample.first_tokens_known for sample in good)
        if untold:
            which = f"the first chunk of {untold} of {len(good)} answers"
            yield f"how many tokens {which} holds is not told: one is assumed"
    elif numbers.tokens_per_chunk and numbers.tokens_per_chunk < 2 - _ONE_TOKEN:
        yield f"{numbers.tokens_per_chunk:.2f} tokens per chunk: the server also sends chunks without any"
    if not good:
        return
    if numbers.prompt_tokens is None:
        yield "the server does not tell how many tokens a prompt had" + ("" if input_len else ": it was text")
    elif input_len is None:
        yield f"text prompts of {numbers.prompt_tokens:.0f} tokens on average: the server is not asked by token ids"
    elif numbers.prompt_tokens != input_len:
        yield f"the server counted {numbers.prompt_tokens:.1f} tokens in prompts of {input_len} token ids"


def _surrounding_notes(recording: Recording, engine: EngineDelta | None, gpus: tuple[GpuUse, ...]) -> Iterator[str]:
    if engine and engine.preemptions:
        yield f"the engine preempted {engine.preemptions:.0f} requests: its KV cache was full"
    if recording.resent:
        yield f"the server ends connections that it offers to keep: {recording.resent} requests were sent once more"
    retries = [sample for sample in recording.samples if sample.role is Role.RETRY]
    if retries:
        answered = sum(not sample.failure for sample in retries)
        yield f"failed requests were made again {len(retries)} times, {answered} were answered: in no latency here"
    spare = (Role.WARM_UP, Role.COOL_DOWN)
    uncounted = [sample for sample in recording.samples if sample.role in spare and sample.failure]
    if uncounted:
        yield f"{len(uncounted)} requests that do not count failed too ({uncounted[0].failure[:80]})"
    for gpu in gpus:
        if gpu.memory_mib and gpu.memory_mib[1] > gpu.memory_mib[0] * (1 + _MEMORY_GROWTH):
            yield f"memory of GPU {gpu.index} grew from {gpu.memory_mib[0]} to {gpu.memory_mib[1]} MiB"


def _kv_cache_share(
    recording: Recording, numbers: Measured, capacity: int | None, block_size: int | None
) -> float | None:
    """Return how much of the KV cache all requests take at their full length, in whole blocks."""
    if not capacity or not block_size or numbers.prompt_tokens is None or numbers.output_tokens is None:
        return None
    blocks = math.ceil((numbers.prompt_tokens + numbers.output_tokens) / block_size)
    return recording.concurrency * blocks * block_size / capacity
