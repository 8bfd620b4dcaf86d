"""A model, a GPU and what is wanted, in; for every precision that makes sense, what fits and how fast, out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.budget import Budget, Engine, budget, defaults, fits_natively
from lpxdoctor.sizing.cache import Attention
from lpxdoctor.sizing.card import Card
from lpxdoctor.sizing.ceiling import Step, step
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.pool import Pool, pool
from lpxdoctor.sizing.precision import HALF, LOWER, Precision, named

USUAL_CONTEXT = 8192


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the plan is for; None where nothing was asked."""

    context: int
    concurrency: int | None = None
    precision: str | None = None
    kv_format: str = "auto"
    tensor_parallel: int = 1


@dataclass(frozen=True, kw_only=True)
class Option:
    """One precision on one GPU.

    Attributes:
        precision: the format, whose name is "as stored" for a checkpoint's own of an unknown kind.
        stored: whether the checkpoint is in that format already.
        native: whether the GPU computes in it.
        engine: the settings that the budget is for.
        budget: how the memory is shared out.
        pool: the KV cache on one GPU.
        wish: what the plan is for.
        max_concurrency: the most requests of the wanted context that fit at once.
        longest: the longest context at the wanted concurrency, or of a single request.
        steps: one sequence at its start, one at the wanted context, and all that fit at it.
    """

    precision: Precision
    stored: bool
    native: bool
    engine: Engine
    budget: Budget
    pool: Pool
    wish: Wish
    max_concurrency: int
    longest: int
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> int:
        """The capacity of the KV cache in tokens, as vLLM will log it."""
        return self.pool.tokens(self.budget.room, self.wish.context)

    @property
    def fits(self) -> bool:
        """Whether the model and the wanted requests fit."""
        return self.max_concurrency >= (self.wish.concurrency or 1)


def wish(
    model: Model,
    *,
    context: int | None,
    concurrency: int | None,
    precision: str | None,
    kv_format: str,
    tensor_parallel: int,
) -> Wish:
    """Return what is wanted, checked against the model.

    Without a context it is 8192 tokens, or what the model can where that is less.

    Raises:
        UsageError: for what this model cannot do on any GPU.
    """
    if context and model.longest and context > model.longest:
        raise UsageError(f"{model.name} knows {model.longest} positions, and --context {context} is more")
    if not shareable(model, tensor_parallel):
        raise UsageError(
            f"{model.heads} heads and their KV heads cannot be shared in equal parts by {tensor_parallel} GPUs"
        )
    scheme = model.weights.scheme
    if precision and scheme and precision != scheme:
        raise UsageError(
            f"{model.name} is stored as {scheme}, and is served as it is. "
            f"To plan for {precision}, type the checkpoint in 16 bit that it was made from"
        )
    usual = min(USUAL_CONTEXT, model.longest or USUAL_CONTEXT)
    return Wish(
        context=context or usual,
        concurrency=concurrency,
        precision=precision,
        kv_format=model.kv_format if kv_format == "auto" else kv_format,
        tensor_parallel=tensor_parallel,
    )


def shareable(model: Model, tensor_parallel: int) -> bool:
    """Whether so many GPUs can share a model: its heads in equal parts, its KV heads too or each by some GPUs."""
    kv_heads = {layer.heads for layer in model.layers if isinstance(layer, Attention) and not layer.latent}
    uneven = (heads for heads in kv_heads if heads % tensor_parallel and tensor_parallel % heads)
    return model.heads % tensor_parallel == 0 and not any(uneven)


def options(model: Model, card: Card, wanted: Wish) -> tuple[Option, ...]:
    """Return an option for each precision: the checkpoint's own first, then what the GPU computes besides."""
    found = _precisions(model, card, wanted.precision)
    return tuple(_option(model, card, wanted, precision, stored) for precision, stored in found)


def _precisions(model: Model, card: Card, asked: str | None) -> Iterator[tuple[Precision, bool]]:
    """Yield (precision, whether the checkpoint is stored in it).

    FP8 is left out where the GPU does not compute in it: its weights would only be unpacked to 16 bit again.
    """
    scheme = model.weights.scheme
    if scheme:
        found = next((precision for precision in LOWER if precision.name == scheme), None)
        other = Precision(name="as stored") if scheme == "other" else Precision(name=scheme, native="fp4")
        yield found or other, True
        return
    own = named(asked if asked in [half.name for half in HALF] else model.half)
    other = next(half for half in HALF if half is not own)
    yield (other if asked != own.name and not fits_natively(card, own) and fits_natively(card, other) else own), True
    for precision in LOWER:
        if fits_natively(card, precision):
            yield precision, False


def _option(model: Model, card: Card, wanted: Wish, precision: Precision, stored: bool) -> Option:
    bits = None if stored else precision.bits
    parallel = wanted.tensor_parallel
    engine = defaults(card)
    engine = replace(engine, batched_tokens=max(engine.batched_tokens, wanted.concurrency or 1))
    kv = pool(model.layers, wanted.kv_format, model.half_bytes, tensor_parallel=parallel, in_flight=engine.in_flight)

    def shared(sequences: int) -> Budget:
        return budget(model, card, replace(engine, sequences=sequences), bits, parallel)

    def held(sequences: int) -> int:
        return kv.requests(shared(sequences).room, wanted.context)

    most = _settled(held, max(engine.sequences, wanted.concurrency or 1))
    engine = replace(engine, sequences=wanted.concurrency or min(max(most, 1), engine.sequences))
    memory = shared(engine.sequences)
    steps = [(1, 0), (1, wanted.context), (max(most, 1), wanted.context)]
    return Option(
        precision=precision,
        stored=stored,
        native=precision.native in card.native or (stored and not model.weights.scheme),
        engine=engine,
        budget=memory,
        pool=kv,
        wish=wanted,
        max_concurrency=most,
        longest=kv.longest(memory.room, wanted.concurrency or 1, model.longest),
        steps=tuple(
            step(model, kv, sequences=count, context=context, bits=bits, tensor_parallel=parallel)
            for count, context in steps
        ),
    )


def _settled(held: Callable[[int], int], most: int) -> int:
    """Return how many requests fit at once when the engine is set up for just as many.

    More sequences take more memory while they are sampled from, so fewer fit. Beyond the engine's default nothing is
    reserved for sampling, and what fits is what the cache holds.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held(middle) >= middle else (low, middle - 1)
    return held(most) if low == most else low
