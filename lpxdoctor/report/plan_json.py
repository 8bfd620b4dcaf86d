"""A plan in, its JSON of schema 1 out."""

from typing import Literal

import msgspec

from lpxdoctor.report.encoding import pretty
from lpxdoctor.sizing.budget import Budget
from lpxdoctor.sizing.card import Card
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.options import Option
from lpxdoctor.sizing.plan import Plan

_ESTIMATES = ("activations_bytes", "graphs_bytes", "runtime_bytes")


class ModelDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The model. exact: its weights were read from their headers; max_context in tokens, null where it does not say."""

    name: str
    served: str
    architecture: str
    scheme: str
    exact: bool
    max_context: int | None


class GpuDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU. index, free_bytes: null for one by name; native are the number formats that it computes in."""

    name: str
    index: int | None
    compute_capability: str
    native: tuple[str, ...]
    memory_bytes: int
    memory_from: str
    free_bytes: int | None
    holders: tuple[str, ...]
    bandwidth_bytes_per_s: int | None
    bandwidth_from: str


class KvCacheDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The KV cache on one GPU; other_formats_tokens: its capacity in the other formats that the GPU computes in."""

    bytes_per_token: int
    bytes_per_request: int
    tokens: int
    format: str
    other_formats_tokens: dict[str, int]


class BudgetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU's memory is shared out; estimates names what is none of the exact numbers."""

    utilization: float
    requested_bytes: int
    weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    runtime_bytes: int
    kv_room_bytes: int
    estimates: tuple[str, ...]


class CeilingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The most tokens a second of so many requests, of so many tokens each; null where the bandwidth is not known."""

    concurrency: int
    context: int
    bytes_per_step: int
    tokens_per_s: float | None


class PrecisionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The same plan with weights in one format; needs_checkpoint: the kind of checkpoint that it takes, null for none.

    native: whether the GPU computes in it; stored: whether the checkpoint is in it.
    """

    name: str
    native: bool
    stored: bool
    needs_checkpoint: str | None
    weights_bytes: int
    kv_tokens: int
    max_concurrency: int
    max_context: int
    ceiling_tokens_per_s: float | None
    fits: bool


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A plan; sizes are bytes of one GPU, but for weights_bytes: of the whole model. refusal: null where it fits.

    ceiling_tokens_per_s is that of one request whose KV cache is still empty. arguments are the engine's, empty where
    it does not fit; reasons: argument -> why.
    """

    schema: Literal[1] = 1
    model: ModelDocument
    gpu: GpuDocument
    context: int
    concurrency: int | None
    precision: str
    tensor_parallel: int
    weights_bytes: int
    kv_cache: KvCacheDocument
    budget: BudgetDocument
    max_concurrency: int
    max_context: int
    ceiling_tokens_per_s: float | None
    ceilings: tuple[CeilingDocument, ...]
    precisions: tuple[PrecisionDocument, ...]
    fits: bool
    refusal: str | None
    ways_out: tuple[str, ...]
    arguments: tuple[str, ...]
    reasons: dict[str, str]
    notes: tuple[str, ...]


def to_json(plan: Plan) -> str:
    """Return the plan as JSON text."""
    chosen = plan.chosen
    document = Document(
        model=_model(plan.model),
        gpu=_gpu(plan.card),
        context=plan.wish.context,
        concurrency=plan.wish.concurrency,
        precision=chosen.precision.name,
        tensor_parallel=plan.wish.tensor_parallel,
        weights_bytes=_weights(plan, chosen),
        kv_cache=_kv(plan),
        budget=_budget(chosen.budget, chosen.engine.utilization),
        max_concurrency=chosen.max_concurrency,
        max_context=chosen.longest,
        ceiling_tokens_per_s=_ceiling(plan, chosen),
        ceilings=_ceilings(plan),
        precisions=tuple(_precision(plan, option) for option in plan.options),
        fits=plan.fits,
        refusal=plan.refusal or None,
        ways_out=plan.ways_out,
        arguments=tuple(word for argument in plan.arguments for word in (argument.flag, argument.value)),
        reasons={argument.flag: argument.reason for argument in plan.arguments},
        notes=plan.notes,
    )
    return pretty(document)


def _model(model: Model) -> ModelDocument:
    return ModelDocument(
        name=model.name,
        served=model.served,
        architecture=model.architecture,
        scheme=model.weights.scheme,
        exact=model.weights.exact,
        max_context=model.longest,
    )


def _gpu(card: Card) -> GpuDocument:
    return GpuDocument(
        name=card.name,
        index=card.index,
        compute_capability=card.capability,
        native=card.native,
        memory_bytes=card.total_bytes,
        memory_from=card.memory_from,
        free_bytes=card.free_bytes,
        holders=card.holders,
        bandwidth_bytes_per_s=card.bytes_per_s,
        bandwidth_from=card.bandwidth_from,
    )


def _kv(plan: Plan) -> KvCacheDocument:
    chosen = plan.chosen
    return KvCacheDocument(
        bytes_per_token=chosen.pool.token_bytes,
        bytes_per_request=chosen.pool.request_bytes(chosen.wish.context),
        tokens=chosen.tokens,
        format=plan.wish.kv_format,
        other_formats_tokens=dict(plan.kv_tokens),
    )


def _budget(memory: Budget, utilization: float) -> BudgetDocument:
    return BudgetDocument(
        utilization=utilization,
        requested_bytes=memory.requested,
        weights_bytes=memory.weights,
        activations_bytes=memory.activations,
        graphs_bytes=memory.graphs,
        runtime_bytes=memory.runtime,
        kv_room_bytes=memory.room,
        estimates=_ESTIMATES,
    )


def _weights(plan: Plan, option: Option) -> int:
    return plan.model.weights.resident_bytes(None if option.stored else option.precision.bits)


def _ceiling(plan: Plan, option: Option) -> float | None:
    """Return the tokens a second of one sequence whose KV cache is still empty: nothing can be faster."""
    return round(option.steps[0].tokens_per_s(plan.card.bytes_per_s), 1) if plan.card.bytes_per_s else None


def _ceilings(plan: Plan) -> tuple[CeilingDocument, ...]:
    rate = plan.card.bytes_per_s
    return tuple(
        CeilingDocument(
            concurrency=step.sequences,
            context=step.context,
            bytes_per_step=step.bytes,
            tokens_per_s=round(step.tokens_per_s(rate), 1) if rate else None,
        )
        for step in plan.chosen.steps
    )


def _precision(plan: Plan, option: Option) -> PrecisionDocument:
    return PrecisionDocument(
        name=option.precision.name,
        native=option.native,
        stored=option.stored,
        needs_checkpoint=None if option.stored else option.precision.checkpoint or None,
        weights_bytes=_weights(plan, option),
        kv_tokens=option.tokens,
        max_concurrency=option.max_concurrency,
        max_context=option.longest,
        ceiling_tokens_per_s=_ceiling(plan, option),
        fits=option.fits,
    )
