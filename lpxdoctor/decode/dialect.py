"""A server and two requests at a time in, how it wants to be asked out: from the most exact way to the plainest."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.samples import Sample
from lpxdoctor.decode.target import Target
from lpxdoctor.decode.workload import ChunkUsage, Dialect, Workload
from lpxdoctor.errors import MeasureError

_NOT_UNDERSTOOD = ("http-400", "http-422", "http-500")
_NOT_THERE = ("http-404", "http-405", "http-501")
# What a refusal names, and what is asked instead; where it names nothing they are given up one after the other.
_PLAINER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("continuous_usage_stats", {"chunk_usage": ChunkUsage.NEVER}),
    ("prompt", {"token_ids": False}),
    ("cache_salt", {"cache_salt": False}),
    ("ignore_eos", {"ignore_eos": False}),
    ("max_completion_tokens", {"max_tokens": "max_completion_tokens"}),  # what models that reason ask for
    ("stream_options", {"chunk_usage": ChunkUsage.NEVER, "usage": False}),
    ("temperature", {"temperature": False}),
)


def negotiated(target: Target, workload: Workload, timeout_s: float, hooks: Hooks) -> Dialect:
    """Send pairs of requests that do not count until one is answered; return how it was asked.

    Raises:
        MeasureError: the server answers none.
    """
    dialect: Dialect | None = workload.dialect
    tried: list[Dialect] = []
    seen: list[Sample] = []
    while dialect is not None:
        tried.append(dialect)
        part = replace(workload.part(f"warm-up{len(tried)}"), dialect=dialect)
        seen = _two(target, part, timeout_s, hooks)
        if any(not sample.failure for sample in seen):
            return _full_length(target, part, timeout_s, hooks, seen)
        if hooks.is_stopped():
            return dialect
        dialect = _other(dialect, seen)
    raise refusal(target, [sample.failure for sample in seen])


def _other(dialect: Dialect, seen: Sequence[Sample]) -> Dialect | None:
    """Return how to ask after these failures, None when nothing else is left to try."""
    if seen and all(sample.kind in _NOT_THERE for sample in seen) and not (dialect.chat or dialect.only):
        return replace(dialect, chat=True)
    if not seen or not all(sample.kind in _NOT_UNDERSTOOD for sample in seen):
        return None
    left = [(name, change) for name, change in _PLAINER if _is_asked(dialect, name, change)]
    named = [change for name, change in left if any(name in sample.failure.lower() for sample in seen)]
    changes = named or [change for name, change in left if name != "max_completion_tokens"]
    return replace(dialect, **changes[0]) if changes else None


def _is_asked(dialect: Dialect, name: str, change: dict[str, Any]) -> bool:
    return name != ("prompt" if dialect.chat else "cache_salt") and replace(dialect, **change) != dialect


def _full_length(target: Target, workload: Workload, timeout_s: float, hooks: Hooks, seen: list[Sample]) -> Dialect:
    """Return the dialect: with min_tokens where answers end early without, with counts per chunk only where needed.

    Where text is sent, with as many words as give the tokens asked for.
    """
    answered = [sample for sample in seen if not sample.failure]
    dialect = workload.dialect
    told = next((sample.prompt_tokens for sample in answered if sample.prompt_tokens), None)
    if told and not dialect.is_exact:
        dialect = replace(dialect, words_per_token=workload.input_len / told)
    if dialect.chunk_usage is ChunkUsage.ALWAYS and all(s.tokens <= len(s.arrivals_ns) for s in answered):
        dialect = replace(dialect, chunk_usage=ChunkUsage.WHEN_NEEDED)
    if all(sample.tokens >= workload.output_len for sample in answered):
        return dialect
    longer = replace(dialect, min_tokens=True)
    again = _two(target, replace(workload.part("longer"), dialect=longer), timeout_s, hooks)
    holds = again and all(not sample.failure and sample.tokens >= workload.output_len for sample in again)
    return longer if holds else dialect


def _two(target: Target, workload: Workload, timeout_s: float, hooks: Hooks) -> list[Sample]:
    quiet = Hooks(is_stopped=hooks.is_stopped)
    loop = Loop(target.endpoint, workload, 1, 1, timeout_s=timeout_s, hooks=quiet, retries=False)
    return list(loop.run().samples)


def refusal(target: Target, failures: list[str]) -> MeasureError:
    """Return the error for a server that answered no request at all."""
    kinds = Counter(failure.partition(":")[0] for failure in failures)
    most = kinds.most_common(1)[0][0] if kinds else "nothing was sent"
    example = next((failure for failure in failures if failure.startswith(most)), "")
    what = {
        "http-401": "The API key is missing or wrong: name a file with --api-key-file, or set LPXDOCTOR_API_KEY.",
        "http-403": "The API key may not do this: name another one with --api-key-file.",
        "http-404": "It has no /v1/completions and no /v1/chat/completions for this model: is it an OpenAI-compatible "
        "server, and are the path in the URL and the model's name right?",
        "http-429": "It limits the rate of requests: measure at the engine itself, not at a gateway before it.",
        "stall": "It is busy or stuck: look at its log, or allow more with --timeout.",
        "connect": "It went away: look at its log.",
    }.get(most, "Look at the engine's log.")
    return MeasureError(f"Every request to {target.endpoint.url} failed.\nSeen: {example}\n{what}")
