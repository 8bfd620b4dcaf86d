"""What a server tells of itself: an endpoint in, its models, version, cache and counters out."""

import re
import selectors
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field

import msgspec

from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.decode.http import ProtocolError, Response
from lpxdoctor.decode.profile import EngineDelta
from lpxdoctor.decode.transport import Transport, tls_maker
from lpxdoctor.errors import MeasureError

_TIMEOUT_S = 10
_BODY_LIMIT = 1 << 26
_MOVED = (301, 302, 303, 307, 308)
_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Names of vLLM 0.33, then what older versions called the same.
_COUNTERS = {
    "generation_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "ttft_sum": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
    "queue_sum": ("vllm:request_queue_time_seconds_sum",),
    "queue_count": ("vllm:request_queue_time_seconds_count",),
    "prefill_sum": ("vllm:request_prefill_time_seconds_sum",),
    "prefill_count": ("vllm:request_prefill_time_seconds_count",),
    "gap_sum": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "gap_count": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
}


class Model(msgspec.Struct, frozen=True):
    """A model as /v1/models lists it."""

    id: str
    root: str | None = None
    parent: str | None = None  # of a LoRA adapter
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[Model, ...]


@dataclass(frozen=True)
class Metrics:
    """The engine's counters at one moment, summed over its replicas, and its cache configuration; empty without any."""

    counters: dict[str, float] = field(default_factory=dict[str, float])
    cache_config: dict[str, str] = field(default_factory=dict[str, str])


def fetch(endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    """GET a path and return status and body.

    Raises:
        MeasureError: nothing answers there, or not as HTTP.
    """
    try:
        return _get(endpoint, path)
    except (OSError, ProtocolError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        way = f" through the proxy {endpoint.proxy.netloc}" if endpoint.proxy else ""
        raise MeasureError(
            f"No answer from {endpoint.url}{path}{way}: {reason}.\n"
            f"Is the engine running and ready, and is this its address? Try: curl -s {endpoint.url}/v1/models"
        ) from None


def _get(endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    response = Response()
    body: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_S
    tls = tls_maker(endpoint)
    unsent = endpoint.request("GET", path)
    with (
        selectors.DefaultSelector() as selector,
        closing(Transport(endpoint, 0, tls() if tls else None)) as transport,
    ):
        selector.register(transport, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while not response.complete:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not selector.select(left_s):
                raise TimeoutError(f"no complete answer came within {_TIMEOUT_S} s")
            if transport.wants_to_write or not transport.ready:
                transport.progress()
            else:
                _take(transport, response, body)
            if transport.ready and unsent:
                transport.send(transport.prepare(unsent))
                unsent = b""
            writing = selectors.EVENT_WRITE if transport.wants_to_write else 0
            selector.modify(transport, selectors.EVENT_READ | writing)
    return response.status, b"".join(body)


def _take(transport: Transport, response: Response, body: list[bytes]) -> None:
    content = transport.receive()
    if content:
        body.append(response.feed(content))
        if sum(map(len, body)) > _BODY_LIMIT:
            raise ProtocolError(f"The answer does not end within {_BODY_LIMIT >> 20} MiB.")
    elif content is not None:
        response.end()
        if not response.complete:
            raise ConnectionResetError("the connection ended before the answer did")


def models(endpoint: Endpoint) -> tuple[Model, ...] | None:
    """Return the models that are served, None when the server does not list any.

    Raises:
        MeasureError: nothing answers, or the key is not accepted.
    """
    status, body = fetch(endpoint, "/v1/models")
    if status in (401, 403):
        seen = "refuses this API key" if endpoint.api_key else "asks for an API key"
        raise MeasureError(
            f"{endpoint.url} {seen} (HTTP {status}).\n"
            "Put the key into a file and name it: --api-key-file FILE, or set LPXDOCTOR_API_KEY."
        )
    if status in _MOVED:
        raise MeasureError(f"{endpoint.url} answers with a redirect (HTTP {status}): give the URL that it leads to.")
    if status != 200:
        return None
    try:
        return msgspec.json.decode(body, type=_Models).data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def version(endpoint: Endpoint) -> str | None:
    """Return the engine's version, None when the server does not tell one."""
    try:
        status, body = fetch(endpoint, "/version")
        found = msgspec.json.decode(body, type=dict[str, str]).get("version") if status == 200 else None
    except (MeasureError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found


def metrics(endpoint: Endpoint) -> Metrics:
    """Return the engine's counters, none when the server has no metrics."""
    try:
        status, body = fetch(endpoint, "/metrics")
    except MeasureError:
        return Metrics()
    return parse_metrics(body.decode(errors="replace")) if status == 200 else Metrics()


def parse_metrics(text: str) -> Metrics:
    """Read the Prometheus text format as far as a rung needs it."""
    sums: dict[str, float] = {}
    cache: dict[str, str] = {}
    wanted = {name for names in _COUNTERS.values() for name in names}
    for name, labels, value in _SAMPLE.findall(text):
        if name == "vllm:cache_config_info":
            cache.update(_LABEL.findall(labels))
        elif name in wanted:
            with suppress(ValueError):
                sums[name] = sums.get(name, 0.0) + float(value)
    counters = {
        key: next(sums[name] for name in names if name in sums)
        for key, names in _COUNTERS.items()
        if any(name in sums for name in names)
    }
    return Metrics(counters, cache)


def delta(before: Metrics, after: Metrics, received_tokens: int) -> EngineDelta | None:
    """Return what the engine counted between two moments, None when it has no counters."""
    if not after.counters:
        return None

    def grew(name: str) -> float | None:
        if name not in before.counters or name not in after.counters:
            return None
        grown = after.counters[name] - before.counters[name]
        return grown if grown >= 0 else None  # less than before: the engine was started anew meanwhile

    def ratio(part: str, whole: str, scale: float = 1.0) -> float | None:
        parts, wholes = grew(part), grew(whole)
        return scale * parts / wholes if parts is not None and wholes else None

    return EngineDelta(
        generation_tokens=grew("generation_tokens"),
        received_tokens=received_tokens,
        prefix_cache_hit_rate=ratio("cache_hits", "cache_queries"),
        preemptions=grew("preemptions"),
        ttft_mean_ms=ratio("ttft_sum", "ttft_count", 1000.0),
        inter_token_mean_ms=ratio("gap_sum", "gap_count", 1000.0),
        queue_mean_ms=ratio("queue_sum", "queue_count", 1000.0),
        prefill_mean_ms=ratio("prefill_sum", "prefill_count", 1000.0),
    )
