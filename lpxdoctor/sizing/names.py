"""A checkpoint's tensors in; bytes and parameters by what decoding does with them out."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lpxdoctor.sizing.safetensors import Tensor
from lpxdoctor.sizing.weights import Part

_HALF = ("F64", "F32", "F16", "BF16")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_OTHER_MODALITY = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|vit|vpm|resampler|audio_tower|audio_encoder|"
    r"multi_modal_projector|mm_projector|patch_merger|vision_language_adapter|embed_vision|embed_audio|img_processor|"
    r"image_newline|apm|tts)(?:\.|$)"
)
# Heads for speculative decoding, and tables that the engine computes by itself: it does not load them.
_NOT_LOADED = re.compile(r"(?:^|\.)mtp\.|\.rotary_emb\.inv_freq$|\.masked_bias$")
# The first that matches decides.
_RULES = tuple(
    (re.compile(pattern), part)
    for pattern, part in (
        (r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|embed_in)\.q?weight$", Part.EMBEDDING),
        (r"^(?:backbone|model)\.embeddings?\.weight$", Part.EMBEDDING),
        (r"(?:^|\.)(?:lm_head|embed_out|output)\.q?weight", Part.HEAD),
        (r"\.(?:gate|router|shared_expert_gate)\.", Part.KEPT),
        (r"\.experts\.", Part.EXPERTS),
        (r"(?:scale|scales|scale_inv|scale_2|zeros|zero_point|g_idx|absmax|quant_map|weight_shape)$", Part.LINEAR),
        (r"quant_state", Part.LINEAR),
        (r"norm|conv1d|\.conv\.conv\.|(?:^|\.)(?:A_log|D|dt_bias|sinks)$|bias$", Part.KEPT),
    )
)


@dataclass(frozen=True)
class Stored:
    """What files hold of a model by part: bytes once they are loaded, and parameters, fewer than real if packed."""

    bytes: Counter[Part]
    parameters: Counter[Part]


def sort(tensors: Iterable[Tensor], layers: int, *, tied: bool, half_bytes: int, quantized: bool) -> Stored:
    """Sort tensors by part.

    Args:
        tensors: of all files.
        layers: how many layers the engine loads; further ones are for speculative decoding.
        tied: whether embedding and output head are one.
        half_bytes: what one element takes once loaded, where the checkpoint is not quantized: files of 32 bit are
            loaded as 16 bit.
        quantized: whether elements are loaded in the types in which they are stored.
    """
    size: Counter[Part] = Counter()
    count: Counter[Part] = Counter()
    for tensor in tensors:
        part = part_of(tensor, layers)
        if tied and part is Part.HEAD:
            continue
        if tied and part is Part.EMBEDDING:
            part = Part.HEAD
        if part is not None:
            cast = not quantized and tensor.dtype in _HALF
            size[part] += tensor.elements * half_bytes if cast else tensor.bytes
            count[part] += tensor.elements
    return Stored(size, count)


def part_of(tensor: Tensor, layers: int) -> Part | None:
    """Return what a tensor is for, None for one that the engine does not load."""
    name = tensor.name
    if _OTHER_MODALITY.search(name):
        return Part.IDLE
    layer = _LAYER.search(name)
    if _NOT_LOADED.search(name) or (layer and int(layer[1]) >= layers):
        return None
    usual = Part.KEPT if tensor.dimensions < 2 else Part.LINEAR
    return next((part for pattern, part in _RULES if pattern.search(name)), usual)
