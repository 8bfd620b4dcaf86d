"""A model's parameters by what decoding does with them in; bytes in memory, and bytes read per step, out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class Part(Enum):
    """What a parameter is for, which decides whether it is quantized and whether a decode step reads it."""

    EMBEDDING = "embedding"  # a step reads one row a sequence
    HEAD = "output head"  # read whole; 16 bit under every scheme of vLLM's
    LINEAR = "linear"  # read whole; what quantization shrinks
    EXPERTS = "experts"  # the routed ones: a step reads those that its tokens chose
    KEPT = "norms, gates and biases"  # read whole; never quantized, on every GPU in full
    IDLE = "other modalities"  # in memory, and not read while text is decoded


QUANTIZED = (Part.LINEAR, Part.EXPERTS)
Tally = Counter[Part]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A model's weights.

    Attributes:
        parameters: by part, as far as they are known; those of a tied head and embedding under HEAD alone.
        stored: bytes of the checkpoint as it is, once loaded.
        exact: whether these are of files, and not counted from the config.
        scheme: the checkpoint's own quantization, "" for 16 bit.
        tied: whether output head and embedding are one.
        half_bytes: what one unquantized parameter takes once loaded.
        experts, experts_per_token: routed ones of a layer, 0 for a dense model.
    """

    parameters: Mapping[Part, int]
    stored: Mapping[Part, int]
    exact: bool
    scheme: str = ""
    tied: bool = False
    half_bytes: int = 2
    experts: int = 0
    experts_per_token: int = 0

    def resident_bytes(self, bits: Fraction | None = None, tensor_parallel: int = 1) -> int:
        """Return the bytes in one GPU's memory.

        Args:
            bits: of each quantized parameter, its share of the scales included; None for the checkpoint as it is.
            tensor_parallel: how many GPUs share the model; each holds norms, gates and biases in full.
        """
        return sum(self._bytes(part, bits, tensor_parallel) for part in Part)

    def step_bytes(self, bits: Fraction | None = None, tensor_parallel: int = 1, sequences: int = 1) -> int:
        """Return the bytes that one GPU reads of the weights to decode one token of each of some sequences.

        Of E experts, k a token, evenly chosen, B sequences read E (1 - (1 - k/E)^B): at least k, for one, at most all.
        """
        read = sum(self._bytes(part, bits, tensor_parallel) for part in (Part.HEAD, Part.LINEAR, Part.KEPT))
        routed = self._bytes(Part.EXPERTS, bits, tensor_parallel)
        if routed and self.experts:
            share = 1 - (1 - self.experts_per_token / self.experts) ** sequences
            routed = round(routed * share)
        return read + routed

    def _bytes(self, part: Part, bits: Fraction | None, tensor_parallel: int) -> int:
        if bits is not None and part in QUANTIZED:
            size = -(-self.parameters.get(part, 0) * bits // 8)
        else:
            size = self.stored.get(part, 0)
        return size if part is Part.KEPT else -(-size // tensor_parallel)
