"""The chosen option in; the arguments of `vllm serve` with the reason for each out."""

from dataclasses import dataclass

from lpxdoctor.sizing.budget import UTILIZATION, defaults
from lpxdoctor.sizing.card import Card, told
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.options import Option

_DTYPES = {"fp16": "half", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Argument:
    """One argument and why; a value of several words has one for each."""

    flag: str
    value: str
    reason: str


def arguments(model: Model, card: Card, option: Option) -> tuple[Argument, ...]:
    """Return what differs from the engine's defaults, and the two limits that keep it safe."""
    found = [Argument("--max-model-len", str(option.wish.context), _context_reason(model, option))]
    if option.wish.concurrency or option.engine.sequences < defaults(card).sequences:
        found.append(Argument("--max-num-seqs", str(option.engine.sequences), _sequences_reason(option)))
    if option.engine.batched_tokens != defaults(card).batched_tokens:
        why = "the engine refuses fewer tokens a step than sequences"
        found.append(Argument("--max-num-batched-tokens", str(option.engine.batched_tokens), why))
    if option.engine.utilization != UTILIZATION:
        found.append(Argument("--gpu-memory-utilization", f"{option.engine.utilization:.2f}", _share_reason(card)))
    if option.wish.tensor_parallel > 1:
        count = str(option.wish.tensor_parallel)
        found.append(Argument("--tensor-parallel-size", count, "as asked; GPUs wait for each other in every layer"))
    if option.precision.arguments and not option.stored:
        flag, value = option.precision.arguments
        found.append(Argument(flag, value, f"{card.name} computes in it; vLLM converts on loading"))
    if option.stored and option.precision.name in _DTYPES and option.precision.name != model.half:
        why = f"{card.name} (compute capability {card.capability}) has no {model.half}"
        found.append(Argument("--dtype", _DTYPES[option.precision.name], why))
    if option.wish.kv_format != model.kv_format:
        found.append(Argument("--kv-cache-dtype", option.wish.kv_format, "as asked; compare its answers with 16 bit"))
    return tuple(found)


def _context_reason(model: Model, option: Option) -> str:
    size = told(option.pool.request_bytes(option.wish.context))
    limit = f"; the model knows {model.longest:,}" if model.longest else ""
    return f"{size} of KV cache a request{limit}"


def _sequences_reason(option: Option) -> str:
    if option.wish.concurrency:
        return f"as asked; {option.max_concurrency} would fit at this context"
    return "as many fill the KV cache; raise it where they are shorter"


def _share_reason(card: Card) -> str:
    held = told(card.total_bytes - (card.free_bytes or 0))
    return f"others hold {held}; at {UTILIZATION} the engine would refuse to start"
