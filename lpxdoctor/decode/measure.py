"""The baseline run: a target and a plan in, a profile out; where load, engine and GPUs come together."""

import math
import resource
import secrets
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec

from lpxdoctor.decode import engine, gauges, origin
from lpxdoctor.decode.dialect import negotiated, refusal
from lpxdoctor.decode.gpu import Sampler
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.ladder import stop_reason
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.profile import Ladder, Profile, Rung
from lpxdoctor.decode.samples import Recording
from lpxdoctor.decode.served import model_of
from lpxdoctor.decode.stats import steady_window
from lpxdoctor.decode.target import Target
from lpxdoctor.decode.validity import judge
from lpxdoctor.decode.workload import Dialect, Workload
from lpxdoctor.errors import UsageError
from lpxdoctor.policy import Ladder as Policy

if TYPE_CHECKING:
    from lpxdoctor.sizing.model import Model

LEAST_REQUESTS = 16
_REQUESTS_PER_SLOT = 4
# Of a ladder's rung: the engine's gauges are read about once a second, and some readings are needed to judge by them.
_LEAST_RUNG_S, _MOST_GAIN = 5.0, 2.0
_SPARE_FILES = 64
_SETTLE_S, _SETTLE_TIMEOUT_S = 0.05, 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure.

    requests is per rung, or by concurrency. None: four per slot and least_requests at least, and on a ladder as many as
    take some seconds.
    """

    concurrencies: tuple[int, ...]
    requests: int | Mapping[int, int] | None
    least_requests: int = LEAST_REQUESTS
    input_len: int
    output_len: int
    timeout_s: float
    command: tuple[str, ...]
    stops: Policy | None = None  # of a ladder, which may end early; None: every concurrency is measured
    model_config: str | None = None  # where the model's config is, None: where the engine or its record says
    endpoint: str | None = None  # "completions" or "chat"; None: completions where the server has them


def measure(
    target: Target, plan: Plan, sampler: Sampler, hooks: Hooks, on_rung: Callable[[Rung], None]
) -> Profile | None:
    """Warm up, then measure one rung after the other; None when it was stopped before anything was measured.

    Raises:
        UsageError: the plan does not fit the model or this machine's limits.
        MeasureError: every request failed.
    """
    _check(target, plan)
    model = model_of(target, plan.model_config)
    started = _now()
    workload = _workload(target, plan)
    workload = replace(workload, dialect=negotiated(target, workload, plan.timeout_s, hooks))
    rungs: list[Rung] = []
    ended = ""
    with closing(_rungs(target, workload, plan, sampler, hooks)) as measuring:
        for rung in measuring:
            rungs.append(rung)
            on_rung(rung)
            ended = stop_reason(rungs, plan.stops) if plan.stops else ""
            if ended:
                break
    if hooks.is_stopped() and not any(rung.requests for rung in rungs):
        return None
    if not any(rung.requests for rung in rungs):
        raise refusal(target, [text for rung in rungs for text in rung.error_examples.values()])
    sampler.read_head()
    made = origin.profile(
        target,
        sampler,
        workload,
        tuple(rungs),
        started=started,
        ended=_now(),
        interrupted=hooks.is_stopped(),
        command=plan.command,
    )
    if plan.stops:
        made = msgspec.structs.replace(made, ladder=Ladder(asked=plan.concurrencies, stopped=ended))
    return _with_ceilings(made, target, model, sampler)


def _workload(target: Target, plan: Plan) -> Workload:
    return Workload(
        model=target.model.id,
        input_len=plan.input_len,
        output_len=plan.output_len,
        nonce=secrets.token_hex(8),
        dialect=Dialect(chat=plan.endpoint == "chat", only=plan.endpoint is not None),
    )


def _with_ceilings(made: Profile, target: Target, model: "tuple[Model, str] | str", sampler: Sampler) -> Profile:
    if isinstance(model, str):
        return _without_ceiling(made, model)
    from lpxdoctor.decode.ceiling import Served, ceilings  # noqa: PLC0415 - only a known model needs sizing

    served = Served(
        model=model[0],
        where=model[1],
        arguments=target.deployment.arguments if target.deployment else None,
        cache_dtype=(made.engine.cache_config or {}).get("cache_dtype"),
    )
    computed = ceilings(made.rungs, served, sampler.names, sampler.cards)
    if isinstance(computed, str):
        return _without_ceiling(made, sampler.failure or computed)
    return msgspec.structs.replace(made, rungs=computed[0], ceiling=computed[1])


def _without_ceiling(made: Profile, why: str) -> Profile:
    return msgspec.structs.replace(made, unknown={**made.unknown, "ceiling": why})


def usual_requests(plan: Plan, concurrency: int) -> int:
    """Return how many requests are counted at a concurrency."""
    asked = plan.requests.get(concurrency) if isinstance(plan.requests, Mapping) else plan.requests
    return asked or max(plan.least_requests, _REQUESTS_PER_SLOT * concurrency)


def requests_after(plan: Plan, concurrency: int, last: Rung | None) -> int:
    """Return how many requests are counted at a concurrency after the rung before it, which is None at first."""
    usual = usual_requests(plan, concurrency)
    if plan.stops is None or plan.requests is not None or last is None:
        return usual
    fastest = (last.requests_per_s or 0.0) * min(concurrency / last.concurrency, _MOST_GAIN)
    return max(usual, math.ceil(_LEAST_RUNG_S * fastest))


def most_at_once() -> int:
    """Return how many connections this machine's limit of open files allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(1, hard - _SPARE_FILES)


def _check(target: Target, plan: Plan) -> None:
    longest = target.model.max_model_len
    if longest is not None and plan.input_len + plan.output_len > longest:
        raise UsageError(
            f"{plan.input_len} tokens in and {plan.output_len} out are more than the {longest} that "
            f"{target.model.id} is served with; choose a smaller --input-len or --output-len."
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(plan.concurrencies) + _SPARE_FILES
    if needed - _SPARE_FILES > most_at_once():
        raise UsageError(f"So many connections need {needed} open files, and {hard} are allowed here: see ulimit -Hn.")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _rungs(
    target: Target, workload: Workload, plan: Plan, sampler: Sampler, hooks: Hooks
) -> Generator[Rung, None, None]:
    before, last = _settled(target), None
    with gauges.watched(target.endpoint if before.counters else None) as watcher:
        for number, concurrency in enumerate(plan.concurrencies):
            if hooks.is_stopped():
                return
            requests = requests_after(plan, concurrency, last)
            part = workload.part(f"rung{number}")
            loop = Loop(target.endpoint, part, concurrency, requests, timeout_s=plan.timeout_s, hooks=hooks)
            began_ns = time.monotonic_ns()
            recording = loop.run()
            ended_ns = time.monotonic_ns()
            after = _settled(target) if before.counters else before
            last = judge(
                recording,
                engine=engine.delta(before, after, _received(recording)),
                gpus=sampler.used(began_ns, ended_ns),
                gpus_unread=sampler.unread(began_ns, ended_ns),
                kv_cache_tokens=_number(after.cache_config.get("kv_cache_size_tokens")),
                block_size=_number(after.cache_config.get("block_size")),
                input_len=plan.input_len if workload.dialect.is_exact else None,
            )
            load = watcher.during(*(steady_window(recording) or (began_ns, ended_ns)))
            yield msgspec.structs.replace(last, load=load)
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


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
