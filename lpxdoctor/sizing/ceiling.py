"""What a decode step reads, and a bandwidth, in; the tokens per second that nothing can exceed, out."""

from dataclasses import dataclass
from fractions import Fraction

from lpxdoctor.sizing.model import Model
from lpxdoctor.sizing.pool import Pool


@dataclass(frozen=True)
class Step:
    """One decode step: sequences of context tokens each, the bytes that one GPU moves for it."""

    sequences: int
    context: int
    bytes: int

    def tokens_per_s(self, bytes_per_s: int) -> float:
        """Return the tokens a second of all sequences together, were memory all that took time."""
        return self.sequences * bytes_per_s / self.bytes


def step(
    model: Model, pool: Pool, *, sequences: int, context: int, bits: Fraction | None = None, tensor_parallel: int = 1
) -> Step:
    """Return what one decode step moves on one GPU.

    All layers and the output head are read once, of routed experts those that the sequences choose; the embedding is
    not. Of every sequence its KV cache is read, as far as each layer sees, and one token of it written. Activations
    are left out, and what GPUs send each other: the ceiling is above what can be reached.

    Args:
        model: what is served.
        pool: its KV cache on one GPU.
        sequences: how many are decoded at once.
        context: tokens of each so far.
        bits: of each quantized parameter; None for the checkpoint as it is.
        tensor_parallel: how many GPUs share the model.
    """
    weights = model.weights.step_bytes(bits, tensor_parallel, sequences)
    cache = sequences * (pool.read_bytes(context) + pool.token_bytes)
    return Step(sequences, context, max(weights + cache, 1))
