"""The baseline run: a target and a plan in, a profile out; where load, engine and GPUs come together."""

import resource
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from lpxdoctor.decode import engine, origin
from lpxdoctor.decode.gpu import Sampler
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.profile import Profile, Rung
from lpxdoctor.decode.samples import Recording, Sample
from lpxdoctor.decode.target import Target
from lpxdoctor.decode.validity import judge
from lpxdoctor.decode.workload import Dialect, Workload
from lpxdoctor.errors import MeasureError, UsageError

_LEAST_REQUESTS, _REQUESTS_PER_SLOT = 16, 4
_SPARE_FILES = 64
_SETTLE_S, _SETTLE_TIMEOUT_S = 0.05, 1.0
# From the most exact to what every OpenAI-compatible server takes.
_DIALECTS = (
    Dialect(),
    Dialect(chunk_usage=False),
    Dialect(token_ids=False),
    Dialect(token_ids=False, chunk_usage=False),
)
_NOT_UNDERSTOOD = ("http-400", "http-422", "http-500")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure; requests is per rung, None: four per slot and sixteen at least."""

    concurrencies: tuple[int, ...]
    requests: int | None
    input_len: int
    output_len: int
    timeout_s: float
    command: tuple[str, ...]


def measure(
    target: Target, plan: Plan, sampler: Sampler, hooks: Hooks, on_rung: Callable[[Rung], None]
) -> Profile | None:
    """Warm up, then measure one rung after the other; None when it was stopped before anything was measured.

    Raises:
        UsageError: the plan does not fit the model or this machine's limits.
        MeasureError: every request failed.
    """
    _check(target, plan)
    started, nonce = _now(), secrets.token_hex(8)
    workload = Workload(model=target.model.id, input_len=plan.input_len, output_len=plan.output_len, nonce=nonce)
    workload = replace(workload, dialect=_warmed_up(target, workload, plan, hooks))
    rungs: list[Rung] = []
    for rung in _rungs(target, workload, plan, sampler, hooks):
        rungs.append(rung)
        on_rung(rung)
    if hooks.is_stopped() and not any(rung.requests for rung in rungs):
        return None
    if not any(rung.requests for rung in rungs):
        raise _refusal(target, [text for rung in rungs for text in rung.error_examples.values()])
    sampler.read_head()
    return origin.profile(
        target,
        sampler,
        workload,
        tuple(rungs),
        started=started,
        ended=_now(),
        interrupted=hooks.is_stopped(),
        command=plan.command,
    )


def _check(target: Target, plan: Plan) -> None:
    longest = target.model.max_model_len
    if longest is not None and plan.input_len + plan.output_len > longest:
        raise UsageError(
            f"{plan.input_len} tokens in and {plan.output_len} out are more than the {longest} that "
            f"{target.model.id} is served with; choose a smaller --input-len or --output-len."
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(plan.concurrencies) + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(f"So many connections need {needed} open files, and {hard} are allowed here: see ulimit -Hn.")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _warmed_up(target: Target, workload: Workload, plan: Plan, hooks: Hooks) -> Dialect:
    """Send two requests that do not count, in the most exact dialect that the server understands; return it."""
    seen: list[Sample] = []
    for number, dialect in enumerate(_DIALECTS):
        seen = _two(target, replace(workload.part(f"warm-up{number}"), dialect=dialect), plan, hooks)
        if any(not sample.failure for sample in seen):
            return _full_length(target, workload, plan, hooks, dialect, seen)
        if hooks.is_stopped():
            return dialect
        if not all(sample.kind in _NOT_UNDERSTOOD for sample in seen):
            break
    raise _refusal(target, [sample.failure for sample in seen])


def _full_length(
    target: Target, workload: Workload, plan: Plan, hooks: Hooks, dialect: Dialect, seen: list[Sample]
) -> Dialect:
    """Return the dialect, with min_tokens where the server ends answers early without, and knows that field."""
    if all(sample.tokens >= plan.output_len for sample in seen if not sample.failure):
        return dialect
    longer = replace(dialect, min_tokens=True)
    again = _two(target, replace(workload.part("warm-up-longer"), dialect=longer), plan, hooks)
    holds = again and all(not sample.failure and sample.tokens >= plan.output_len for sample in again)
    return longer if holds else dialect


def _two(target: Target, workload: Workload, plan: Plan, hooks: Hooks) -> list[Sample]:
    quiet = Hooks(is_stopped=hooks.is_stopped)
    loop = Loop(target.endpoint, workload, 1, 1, timeout_s=plan.timeout_s, hooks=quiet)
    return list(loop.run().samples)


def _rungs(target: Target, workload: Workload, plan: Plan, sampler: Sampler, hooks: Hooks) -> Iterator[Rung]:
    before = _settled(target)
    for number, concurrency in enumerate(plan.concurrencies):
        if hooks.is_stopped():
            return
        requests = plan.requests or max(_LEAST_REQUESTS, _REQUESTS_PER_SLOT * concurrency)
        part = workload.part(f"rung{number}")
        loop = Loop(target.endpoint, part, concurrency, requests, timeout_s=plan.timeout_s, hooks=hooks)
        began_ns = time.monotonic_ns()
        recording = loop.run()
        gpus = sampler.used(began_ns, time.monotonic_ns())
        after = _settled(target) if before.counters else before
        yield judge(
            recording,
            engine=engine.delta(before, after, _received(recording)),
            gpus=gpus,
            kv_cache_tokens=_number(after.cache_config.get("kv_cache_size_tokens")),
            block_size=_number(after.cache_config.get("block_size")),
            input_len=plan.input_len if workload.dialect.token_ids else None,
        )
        before = after
        if recording.stopped:
            return


def _settled(target: Target) -> engine.Metrics:
    """Return the engine's counters once they stand still, or as they are after a second."""
    deadline = time.monotonic() + _SETTLE_TIMEOUT_S
    last = engine.metrics(target.endpoint)
    while last.counters and time.monotonic() < deadline:
        time.sleep(_SETTLE_S)
        now = engine.metrics(target.endpoint)
        if now.counters == last.counters:
            return now
        last = now
    return last


def _received(recording: Recording) -> int:
    return sum(sample.tokens for sample in recording.samples)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _refusal(target: Target, failures: list[str]) -> MeasureError:
    kinds = Counter(failure.partition(":")[0] for failure in failures)
    most = kinds.most_common(1)[0][0] if kinds else "nothing was sent"
    example = next((failure for failure in failures if failure.startswith(most)), "")
    what = {
        "http-401": "The API key is missing or wrong: name a file with --api-key-file, or set LPXDOCTOR_API_KEY.",
        "http-403": "The API key may not do this: name another one with --api-key-file.",
        "http-404": "It has no /v1/completions: is it an OpenAI-compatible server, and the path in the URL right?",
        "http-429": "It limits the rate of requests: measure at the engine itself, not at a gateway before it.",
        "stall": "It is busy or stuck: look at its log, or allow more with --timeout.",
        "connect": "It went away: look at its log.",
    }.get(most, "Look at the engine's log.")
    return MeasureError(f"Every request to {target.endpoint.url} failed.\nSeen: {example}\n{what}")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
