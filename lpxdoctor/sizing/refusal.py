"""An option that does not fit in; why not, in numbers, and what would fit, out."""

from collections.abc import Iterator
from dataclasses import replace

from lpxdoctor.sizing.card import Card, told
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.options import Option, options, shareable

_LEAST_CAPABILITY = (7, 0)  # no release of vLLM has kernels for less
_PARALLEL = (2, 4, 8)


def refusal(model: Model, card: Card, option: Option) -> str:
    """Return why an option cannot be served, "" where it can."""
    if (0, 0) < card.capability_number < _LEAST_CAPABILITY:
        return f"vLLM has no kernels for compute capability {card.capability}: 7.0 (Volta) is the oldest that ever had"
    if option.fits:
        return ""
    memory = option.budget
    wanted = option.wish.concurrency or 1
    parts = (
        f"weights {told(memory.weights)}, one step's activations about {told(memory.activations)}, "
        f"CUDA graphs about {told(memory.graphs)}, the process itself about {told(memory.runtime)}"
    )
    allowed = f"{option.engine.utilization:.2f} x {told(memory.total)} = {told(memory.requested)}"
    each = " on each GPU" if option.wish.tensor_parallel > 1 else ""
    name = f"{model.name} ({option.precision.name})"
    if memory.room <= 0:
        needed = told(memory.requested - memory.room)
        return f"{name} does not fit {card.name}: {parts}: {needed}{each}, and the engine may use {allowed}"
    cache = told(wanted * option.pool.request_bytes(option.wish.context))
    requests = "one request" if wanted == 1 else f"{wanted:,} requests"
    return (
        f"{name} leaves {told(memory.room)} for the KV cache on {card.name} ({allowed}, less {parts}), and {requests} "
        f"of {option.wish.context:,} tokens may need {cache}{each}"
    )


def ways_out(model: Model, card: Card, choices: tuple[Option, ...], option: Option) -> tuple[str, ...]:
    """Return what would fit, the least change first."""
    return tuple(_ways_out(model, card, choices, option))


def _ways_out(model: Model, card: Card, choices: tuple[Option, ...], option: Option) -> Iterator[str]:
    wanted = option.wish
    if card.holders and (emptied := _emptied(model, card, option)):
        yield emptied
    if option.longest:
        yield f"a shorter context: --context {option.longest}"
    if option.max_concurrency and wanted.concurrency:
        yield f"fewer requests at once: --concurrency {option.max_concurrency}"
    for other in choices:
        if other is not option and other.fits:
            needs = f" (needs a checkpoint in {other.precision.checkpoint})" if other.precision.checkpoint else ""
            yield f"weights in {other.precision.name}: --precision {other.precision.name}{needs}"
    for count in _PARALLEL:
        if count > wanted.tensor_parallel and shareable(model, count):
            shared = options(model, card, replace(wanted, tensor_parallel=count, precision=None))
            if any(same.fits and same.precision == option.precision for same in shared):
                yield f"more GPUs: --tensor-parallel {count}" + ("" if card.alike >= count else f" ({count} such GPUs)")
                return


def _emptied(model: Model, card: Card, option: Option) -> str:
    """Return that it fits once others give their memory back (one may be this very model), "" where it does not."""
    empty = replace(card, free_bytes=None, holders=())
    same = next((one for one in options(model, empty, option.wish) if one.precision == option.precision), None)
    if same is None or not same.fits:
        return ""
    held = ", ".join(card.holders)
    return (
        f"it fits the empty card, {same.max_concurrency} at once: end {held}, or plan as if it were: "
        f'--gpu "{card.name}". Is that this very model, served already? Then lpxdoctor baseline measures it'
    )
