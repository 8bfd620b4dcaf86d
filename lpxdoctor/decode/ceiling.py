"""A model, what serves it and the GPUs in; what memory and arithmetic allow at each rung out: pure but for the config.

Source of the formulas: lpxdoctor.sizing.ceiling; bandwidth as in lpxdoctor.sizing.card, from NVML's own readings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from lpxdoctor import knowledge
from lpxdoctor.decode.gpu import Card
from lpxdoctor.decode.limits import limit
from lpxdoctor.decode.profile import Ceiling, CeilingBasis, Rung
from lpxdoctor.sizing.cache import FORMATS
from lpxdoctor.sizing.card import bandwidth
from lpxdoctor.sizing.ceiling import step
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.options import shareable
from lpxdoctor.sizing.pool import Pool, pool
from lpxdoctor.sizing.precision import LOWER
from lpxdoctor.sizing.weights import Part

# Dense 16-bit operations that the matrix units do per CUDA core and clock, by compute capability. They give the peaks
# of NVIDIA's data sheets: A100 312 TFLOP/s (6912 cores, 1.41 GHz), H100 989 (16896, 1.83), L4 121 (7424, 2.04),
# A40 150 (10752, 1.74), T4 65 (2560, 1.59), V100 125 (5120, 1.53), B200 2250 (18944, 1.85).
# GeForce boards do half of it where sums are kept in 32 bit, so for them the bound is twice as far away.
_PER_CORE = {"7.0": 16, "7.5": 16, "8.0": 32, "8.6": 8, "8.9": 8, "9.0": 32, "10.0": 64, "10.3": 64, "12.0": 8}
_FP8_TWICE = ("8.9", "9.0", "10.0", "10.3", "12.0")


@dataclass(frozen=True, kw_only=True)
class Served:
    """How a model is served; arguments is None where nothing tells the engine's."""

    model: Model
    where: str  # its config was read
    arguments: tuple[str, ...] | None
    cache_dtype: str | None  # as the engine tells it


@dataclass(frozen=True, kw_only=True)
class _Layout:
    bits: Fraction | None
    pool: Pool
    tensor_parallel: int
    replicas: int


def ceilings(
    rungs: Sequence[Rung], served: Served, names: Sequence[str], cards: Sequence[Card]
) -> tuple[tuple[Rung, ...], CeilingBasis] | str:
    """Return the rungs with their ceilings and what these are from, or why there are none.

    names and cards are those of all GPUs of the host; the rungs tell which were busy.
    """
    busy = sorted({gpu.index for rung in rungs for gpu in rung.gpus})
    if not busy:
        return "no GPU was seen busy"
    layout = _layout(served, len(busy))
    if isinstance(layout, str):
        return layout
    slowest = [_bandwidth(names[index], cards[index]) for index in busy]
    known = [found for found in slowest if found is not None]
    if len(known) < len(busy):
        return "the GPU does not tell its memory's bandwidth, and the table of GPUs lacks it"
    bytes_per_s, bandwidth_from = min(known)
    flops = min((_flops(cards[index], rungs, index, layout) for index in busy), key=lambda value: value or 0.0)
    basis = CeilingBasis(
        model=served.where,
        weights_bytes=served.model.weights.step_bytes(layout.bits, layout.tensor_parallel, 1),
        weights_from="the headers of its files" if served.model.weights.exact else "its config",
        kv_bytes_per_token=layout.pool.token_bytes,
        bytes_per_s=bytes_per_s,
        bandwidth_from=bandwidth_from,
        flops=flops,
        tensor_parallel=layout.tensor_parallel,
        replicas=layout.replicas,
        assumed=_assumed(served),
    )
    made = (msgspec.structs.replace(rung, ceiling=_of(rung, served.model, layout, basis)) for rung in rungs)
    return tuple(made), basis


def option(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of an engine's option, which has several names; None where it is not given."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") in names:
            return value if equals else arguments[index + 1] if index + 1 < len(arguments) else None
    return None


def _layout(served: Served, busy: int) -> _Layout | str:
    model, arguments = served.model, served.arguments or ()
    parallel = int(option(arguments, "--tensor-parallel-size", "-tp") or 1)
    quantized = option(arguments, "--quantization", "-q")
    lower = next((p for p in LOWER if quantized in p.arguments), None)
    kv_format = option(arguments, "--kv-cache-dtype") or served.cache_dtype or "auto"
    if refusal := _refusal(served, busy, parallel):
        return refusal
    if quantized and not lower and not model.weights.scheme:
        return f"what --quantization {quantized} makes of 16-bit weights is not known here"
    if kv_format not in FORMATS:
        return f"the KV cache's format {kv_format} is not known here"
    kept = model.kv_format if kv_format == "auto" else kv_format
    return _Layout(
        bits=lower.bits if lower and not model.weights.scheme else None,
        pool=pool(model.layers, kept, model.half_bytes, tensor_parallel=parallel),
        tensor_parallel=parallel,
        replicas=int(option(arguments, "--data-parallel-size", "-dp") or 1),
    )


def _refusal(served: Served, busy: int, parallel: int) -> str:
    arguments = served.arguments or ()
    if option(arguments, "--speculative-config", "--speculative-model") is not None:
        return "speculative decoding: a step gives several tokens, and how many is not known beforehand"
    if int(option(arguments, "--pipeline-parallel-size", "-pp") or 1) > 1:
        return "the model is shared out by layers (--pipeline-parallel-size): steps overlap"
    if served.arguments is None and busy > 1:
        return f"{busy} GPUs were busy, and without the engine's arguments it is not known how they share the model"
    if not shareable(served.model, parallel):
        return f"{parallel} GPUs cannot share the heads of {served.model.name}: it is not the model that is served"
    return ""


def _assumed(served: Served) -> tuple[str, ...]:
    if served.arguments is None:
        return ("the weights as they are stored: the engine's arguments are not known",)
    return ()


def _bandwidth(name: str, card: Card) -> tuple[int, str] | None:
    """Return a GPU's peak bandwidth and how it is known."""
    if card.memory_clock_mhz and card.bus_width_bits:
        return bandwidth(card.memory_clock_mhz, card.bus_width_bits)
    row = knowledge.load().gpu_by_name(name)
    return (row.bandwidth_gbs * 10**9, f"the data sheet of {row.name}") if row else None


def _flops(card: Card, rungs: Sequence[Rung], index: int, layout: _Layout) -> float | None:
    rate = _PER_CORE.get(card.capability or "")
    clocks = [gpu.sm_clock_mhz[1] for rung in rungs for gpu in rung.gpus if gpu.index == index and gpu.sm_clock_mhz]
    if not rate or not card.cores or not clocks:
        return None
    twice = layout.bits == 8 and card.capability in _FP8_TWICE
    return float(card.cores * rate * max(clocks) * 10**6 * (2 if twice else 1))


def _of(rung: Rung, model: Model, layout: _Layout, basis: CeilingBasis) -> Ceiling | None:
    if rung.prompt_tokens is None or rung.output_tokens is None:
        return None
    held = limit(rung)
    at_once = held.running if held and held.running else rung.concurrency
    sequences = math.ceil(at_once / layout.replicas)
    context = round(rung.prompt_tokens + rung.output_tokens / 2)
    parallel = layout.tensor_parallel
    moved = step(model, layout.pool, sequences=sequences, context=context, bits=layout.bits, tensor_parallel=parallel)
    weights = model.weights.step_bytes(layout.bits, parallel, sequences)
    per_ms = basis.bytes_per_s / 1000
    compute = _compute_ms(model, rung, sequences, basis)
    rate = rung.output_tokens_per_s
    allowed = layout.replicas * moved.tokens_per_s(basis.bytes_per_s)
    taken = 1000 * at_once / rate if rate else None
    return Ceiling(
        tokens_per_s=allowed,
        share=rate / allowed if rate else None,
        bytes_per_step=moved.bytes,
        step_ms=taken,
        weights_ms=weights / per_ms,
        kv_cache_ms=(moved.bytes - weights) / per_ms,
        compute_ms=compute,
        rest_ms=taken - max(moved.bytes / per_ms, compute or 0.0) if taken is not None else None,
    )


def _compute_ms(model: Model, rung: Rung, sequences: int, basis: CeilingBasis) -> float | None:
    """Return how long one GPU's arithmetic takes: two operations a parameter and token, the prompts' share included."""
    if basis.flops is None or not rung.prompt_tokens or not rung.output_tokens:
        return None
    count = model.weights.parameters
    experts = model.weights.experts_per_token / model.weights.experts if model.weights.experts else 0.0
    layers = count.get(Part.LINEAR, 0) + count.get(Part.EXPERTS, 0) * experts
    head = count.get(Part.HEAD, 0)
    operations = 2 * (head + layers * (1 + rung.prompt_tokens / rung.output_tokens))
    return 1000 * operations * sequences / basis.tensor_parallel / basis.flops
