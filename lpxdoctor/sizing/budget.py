"""A model, a GPU and the engine's settings in; how the engine will share out the GPU's memory, out.

The sum is vLLM's own (v1/worker/gpu_worker.py, determine_available_memory): KV room = total x utilization - weights -
what else the process takes - the peak of one profiling step - its estimate for CUDA graphs. Total, utilization and
weights are exact; the other three are estimates, each with its reason beside it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from lpxdoctor.sizing.card import GIB, MIB, Card
from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.precision import Precision

UTILIZATION = 0.92  # CacheConfig.gpu_memory_utilization; 0.9 before v0.20
CONCURRENT_BATCHES = 2  # asynchronous scheduling: one batch is computed while the next is prepared
_LARGE_BYTES = 70 * GIB
_HUGE_BYTES = 160 * GIB  # vLLM 0.29 and newer; 8192 tokens before, of which less memory is left than needed here
# Non-torch memory of the process after its CUDA context: libraries' workspaces, kernels, and what the profiled graphs
# leave behind. An estimate: 0.5-1 GiB is what vLLM's users report for one GPU, and NCCL's buffers come on top.
_RUNTIME_BYTES, _NCCL_BYTES = GIB, GIB // 2
_CONTEXT_BYTES = GIB // 2  # taken before the engine looks at what is free: 139.29 of 139.81 GiB on an idle H200
# The first capture's shared pool, and each further graph. An estimate, from public logs of models with 28-36 layers:
# 86 graphs 0.64-0.78 GiB, 54 graphs 0.37 GiB, 30 graphs 0.14 GiB, 2 graphs 0.36 GiB.
_GRAPH_POOL_BYTES, _GRAPH_LAYER_BYTES = GIB // 4, 0.15 * MIB
_CAPTURE_MOST = 512
# Logits of every sequence in 16 bit, in fp32, as probabilities and with noise: Sampler of vLLM's v1 engine.
_LOGIT_BYTES = 2 + 4 + 4 + 4


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine's settings that decide its memory."""

    batched_tokens: int
    sequences: int
    utilization: float = UTILIZATION

    @property
    def in_flight(self) -> int:
        """Tokens that may be scheduled and not yet settled."""
        return CONCURRENT_BATCHES * self.batched_tokens


def defaults(card: Card) -> Engine:
    """Return vLLM's defaults for an API server on a GPU (EngineArgs.get_batch_defaults), without its flags.

    Where others hold memory, the share of it that is still free, after the process's own context.
    """
    large = card.total_bytes >= _LARGE_BYTES and "a100" not in card.name.lower()
    tokens = 16384 if card.total_bytes >= _HUGE_BYTES else 8192 if large else 2048
    engine = Engine(batched_tokens=tokens, sequences=1024 if large else 256)
    if card.free_bytes is None:
        return engine
    free = max(card.free_bytes - _CONTEXT_BYTES, 0) / card.total_bytes
    lower = math.floor(free * 100) / 100
    return (
        engine
        if lower >= UTILIZATION
        else Engine(batched_tokens=engine.batched_tokens, sequences=engine.sequences, utilization=lower)
    )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How one GPU's memory is shared out, in bytes. room is what is left for KV; below 0, the model does not fit."""

    total: int
    requested: int
    weights: int
    activations: int
    graphs: int
    runtime: int

    @property
    def room(self) -> int:
        """What is left for the KV cache."""
        return self.requested - self.weights - self.activations - self.graphs - self.runtime


def budget(model: Model, card: Card, engine: Engine, bits: Fraction | None, tensor_parallel: int) -> Budget:
    """Share out a GPU's memory.

    Args:
        model: what is served.
        card: the GPU; of several, each is taken alike.
        engine: its settings.
        bits: of each quantized parameter; None for the checkpoint as it is.
        tensor_parallel: how many GPUs share the model.
    """
    return Budget(
        total=card.total_bytes,
        requested=math.ceil(card.total_bytes * engine.utilization),
        weights=model.weights.resident_bytes(bits, tensor_parallel),
        activations=_activations(model, engine, tensor_parallel),
        graphs=_graphs(model, engine),
        runtime=_RUNTIME_BYTES + (_NCCL_BYTES if tensor_parallel > 1 else 0),
    )


def _activations(model: Model, engine: Engine, tensor_parallel: int) -> int:
    """Return the peak of one step of batched_tokens: in a feed-forward block, or while sampling from all logits.

    A block holds the hidden state three times (residual, normed, its output) and its inner state three times (gate, up,
    their product). The tensors are counted from vLLM's code; what the allocator adds is not.
    """
    hidden = 2 * engine.batched_tokens * model.hidden
    inner = 2 * engine.batched_tokens * -(-model.inner // tensor_parallel)
    sequences = min(engine.sequences, engine.batched_tokens)
    sampling = sequences * model.vocabulary * _LOGIT_BYTES + 2 * hidden
    return max(3 * hidden + 3 * inner, sampling)


def _graphs(model: Model, engine: Engine) -> int:
    """Return what CUDA graphs take: one for each batch size in pieces, and one in full where it is all decoding."""
    largest = min(2 * engine.sequences, _CAPTURE_MOST, engine.batched_tokens)
    sizes = [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, _CAPTURE_MOST + 1, 16)) if size <= largest]
    full = [size for size in sizes if size <= engine.sequences]
    graphs = len(sizes) + len(full)
    return _GRAPH_POOL_BYTES + int(graphs * len(model.layers) * _GRAPH_LAYER_BYTES)


def fits_natively(card: Card, precision: Precision) -> bool:
    """Whether a GPU computes in a precision; for weights alone (int4), whether the engine has kernels for it."""
    if card.capability_number < precision.least_capability:
        return False
    return not precision.native or precision.native in card.native
