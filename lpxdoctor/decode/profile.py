"""What a baseline says and how it is kept: one profile per run, as JSON of schema 1.

What could not be known is null and stands in `unknown` with the reason; nothing is guessed.
"""

import re
from typing import Any

import msgspec

from lpxdoctor.decode.kept import RunVariance, Samples
from lpxdoctor.errors import UsageError

SCHEMA = 1
# No string of JSON has a line break as such, so these are lists and nothing else.
_NUMBERS = re.compile(r"\[\n\s+((?:[-+.\deE]+,\n\s+)*[-+.\deE]+)\n\s+\]")
_BREAK = re.compile(r",\n\s+")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A metric in milliseconds over n samples; percentiles by linear interpolation, null without samples.

    ci95 has a distribution-free 95 % interval per percentile; a null end lies beyond the most extreme sample.
    too_few_for names the percentiles that fewer samples than 1 / (1 - p) stand behind.
    """

    n: int
    mean: float | None
    min: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None
    ci95: dict[str, tuple[float | None, float | None]]
    too_few_for: tuple[str, ...]


class ClientBound(msgspec.Struct, frozen=True, kw_only=True):
    """How far the client itself can have distorted the rung."""

    clock: str  # "kernel": receive times; "program": when the program had read the bytes
    reads: int
    bundled_share: float  # of the reads with tokens: those that brought more than one chunk of an answer
    read_delay_p99_ms: float | None  # arrival to reading
    longest_turn_ms: float  # longest time without asking for arrivals
    send_p99_ms: float | None
    idle_share: float  # of all slots' time: between an answer and the next request
    cpu_share: float  # of one core
    clock_step_ms: float
    error_ms: dict[str, float | None]  # bound on the worst percentile of ttft, itl, tpot
    worst_share: float | None  # the largest bound in relation to its metric


class EngineDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's own counters over the rung, warm-up and cool-down included; null where it has no such counter."""

    generation_tokens: float | None
    received_tokens: int  # ours, by usage
    prefix_cache_hit_rate: float | None
    preemptions: float | None
    ttft_mean_ms: float | None
    inter_token_mean_ms: float | None
    queue_mean_ms: float | None = None  # from a request's arrival in the engine to its first scheduling
    prefill_mean_ms: float | None = None  # from there to its first token


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine said of itself while all slots were busy, read from its metrics a few times a second."""

    samples: int
    running_p50: float
    running_max: float
    waiting_p50: float
    waiting_share: float  # of the samples with a request waiting
    kv_cache_p50: float | None  # share of the KV cache in use
    kv_cache_max: float | None


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """What one decode step moves and computes on one GPU, and how long that takes at least.

    Of a step's time rest_ms is what neither memory nor arithmetic at their peaks explain: scheduling, launching
    kernels, the engine's own work.
    """

    tokens_per_s: float  # of all GPUs together, were memory all that took time
    share: float | None  # measured / this
    bytes_per_step: int
    step_ms: float | None  # measured: one token of every request, prompts included
    weights_ms: float
    kv_cache_ms: float
    compute_ms: float | None  # at the peak of the matrix units, prompts included
    rest_ms: float | None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU over a rung, sampled through NVML."""

    index: int
    name: str
    samples: int
    utilization_mean: float | None  # percent
    sm_clock_mhz: tuple[int, int] | None  # lowest, highest
    memory_clock_mhz: tuple[int, int] | None
    temperature_max_c: int | None
    power_max_w: float | None
    memory_mib: tuple[int, int] | None  # first, last
    slowed_share: dict[str, float]  # reason -> share of the samples
    process_groups: int | None  # unrelated groups of processes with memory on it, null when not told
    xids: tuple[int, ...] | None = None  # codes of the errors that it reported meanwhile, null when nobody could tell


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One concurrency. requests were answered, errors were not; both count only what was to be measured."""

    concurrency: int
    requests: int
    errors: int
    errors_by_kind: dict[str, int]
    error_examples: dict[str, str]
    ttft_ms: Distribution
    itl_ms: Distribution  # gaps between chunks, over all requests
    tpot_ms: Distribution  # per request
    output_tokens_per_s: float | None
    requests_per_s: float | None
    prompt_tokens: float | None  # mean, as the server counted
    output_tokens: float | None  # mean
    tokens_per_chunk: float | None
    window_s: float | None
    kv_cache_share: float | None  # of the KV cache, all requests at their full length; by arithmetic
    valid: bool
    invalid_because: str | None
    notes: tuple[str, ...]
    client: ClientBound
    engine: EngineDelta | None
    gpus: tuple[GpuUse, ...]
    load: EngineLoad | None = None
    ceiling: Ceiling | None = None
    samples: Samples | None = None  # None in profiles of 0.1
    # Requests made in place of failed ones, by the failure; in none of the counts and latencies above.
    retries: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    retries_answered: int = 0


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What serves, as far as it says so itself or its deployment is on record."""

    version: str | None
    image: str | None
    arguments: tuple[str, ...] | None
    max_model_len: int | None
    cache_config: dict[str, str] | None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, as its operating system names itself."""

    name: str
    kernel: str
    cpu: str | None
    cores: int | None


class CeilingBasis(msgspec.Struct, frozen=True, kw_only=True):
    """What the ceilings of all rungs were computed from."""

    model: str  # where its config was read
    weights_bytes: int  # that a step of one sequence reads on one GPU
    weights_from: str
    kv_bytes_per_token: int  # on one GPU
    bytes_per_s: int  # of one GPU's memory
    bandwidth_from: str
    flops: float | None  # of one GPU's matrix units in the weights' precision, at their highest clock
    tensor_parallel: int
    replicas: int
    assumed: tuple[str, ...]


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """A run of rising concurrencies: what was asked for, and why it ended before; "" when it did not."""

    asked: tuple[int, ...]
    stopped: str


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """The rung beyond which more requests at once cost more latency than they bring throughput.

    It has the greatest throughput / latency of all, which is where both begin to change by the same share (Kleinrock
    1979). cause is one of decode.knee.Cause; concurrency is null for none yet.
    """

    concurrency: int | None
    cause: str
    confidence: str  # "high", "medium", "low"
    evidence: tuple[str, ...]
    engine_limit: int | None = None  # how many the engine ran at once while others waited
    advice: tuple[str, ...] = ()  # what may move it, with the reason


class SloRung(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a rung holds the targets: "yes", "likely" (by its percentile, and too few requests to be sure), "no"."""

    concurrency: int
    holds: str
    because: str


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """The largest concurrency that holds every target, null when none does."""

    percentile: str
    targets_ms: dict[str, float]
    concurrency: int | None
    confident: bool
    rungs: tuple[SloRung, ...]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One run of `lpxdoctor baseline`."""

    schema: int = SCHEMA
    id: str
    started: str  # ISO 8601, UTC
    ended: str
    interrupted: bool
    lpxdoctor: str
    command: tuple[str, ...]
    nonce: str
    target: str
    deployment: str | None
    reached: str  # how the requests travel, and what that does to the clock
    model: str
    precision: str | None
    gpu: tuple[str, ...] | None
    driver: str | None
    input_len: int
    input_exact: bool  # token ids were sent; False: text of about that many tokens
    output_len: int
    engine: Engine
    client_host: Host
    unknown: dict[str, str]
    rungs: tuple[Rung, ...]
    ladder: Ladder | None = None
    knee: Knee | None = None
    slo: Slo | None = None
    ceiling: CeilingBasis | None = None
    notes: tuple[str, ...] = ()
    name: str | None = None  # as --name gave it
    api: str | None = None  # the path that requests went to, below the target; None in profiles of 0.1
    evidence: str | None = None  # the beginning of the SHA-256 of what `collect` saw of the engine's host
    pooled_variance: dict[str, RunVariance] | None = None  # by metric; None where no rung was repeated

    @property
    def is_valid(self) -> bool:
        """Whether every rung can be compared with another run's."""
        return all(rung.valid for rung in self.rungs)


def encode(profile: Profile) -> str:
    """Return the profile as JSON text; a list of numbers is one line, for there are thousands."""
    text = msgspec.json.format(msgspec.json.encode(profile), indent=2).decode() + "\n"
    return _NUMBERS.sub(lambda found: f"[{_BREAK.sub(', ', found[1])}]", text)


def decode(content: bytes, origin: str) -> Profile:
    """Read a profile back; origin is named in errors.

    Raises:
        UsageError: it is no profile of this schema.
    """
    try:
        found: Any = msgspec.json.decode(content)
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != SCHEMA:
            raise UsageError(f"{origin} is no baseline of schema {SCHEMA} (it says {schema!r}).")
        return msgspec.convert(found, Profile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{origin} is no baseline that can be read: {error}.\n"
            "A baseline is a file that lpxdoctor baseline kept, with -o or in its own directory."
        ) from None
