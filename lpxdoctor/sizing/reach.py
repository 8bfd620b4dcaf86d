"""A config's words on sliding windows in; how far each layer sees out."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lpxdoctor.sizing.cache import Attention
from lpxdoctor.sizing.fields import Fields

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
_KNOWN = {FULL, SLIDING, CHUNKED, LINEAR, "attention", "mamba", "conv"}


def layer_types(f: Fields, rule: str) -> tuple[str, ...]:
    """Return each layer's type: the config's own list or, in older configs, what the family's rule makes of it."""
    count = f.layers()
    given = f.words("layer_types", count)
    if given is not None:
        unknown = next((word for word in given if word not in _KNOWN), None)
        if unknown is not None:
            raise f.wrong("layer_types", f"names {unknown[:40]!r}, which this version of lpxdoctor does not know")
        return given
    return tuple(_RULES[rule](f, index) for index in range(count))


def within_reach(f: Fields, layer: Attention, types: Sequence[str], *, more: int = 0) -> tuple[Attention, ...]:
    """Return a layer for each type that attends, with its window or chunk; more: tokens seen beyond sliding_window."""
    window = f.optional("sliding_window")
    chunk = f.optional("attention_chunk_size")
    reaches = {
        FULL: layer,
        "attention": layer,
        SLIDING: replace(layer, window=window + more) if window else layer,
        CHUNKED: replace(layer, chunk=chunk) if chunk else layer,
    }
    return tuple(reaches[kind] for kind in types if kind in reaches)


def _every(f: Fields, _: int) -> str:
    return SLIDING if f.optional("sliding_window") else FULL


def _none(_f: Fields, _: int) -> str:
    return FULL


def _qwen(f: Fields, index: int) -> str:
    """Qwen: the layers from max_window_layers on, where use_sliding_window says so."""
    slides = f.flag("use_sliding_window") and index >= f.count("max_window_layers", default=28, least=0)
    return SLIDING if slides else FULL


def _pattern(default: int) -> Callable[[Fields, int], str]:
    """Every so many layers one that sees everything."""

    def rule(f: Fields, index: int) -> str:
        return (
            SLIDING
            if (index + 1) % f.count("sliding_window_pattern", "_sliding_window_pattern", default=default)
            else FULL
        )

    return rule


def _llama4(f: Fields, index: int) -> str:
    """Llama 4: chunks where there is rotary embedding, which is everywhere but in every fourth layer."""
    rotary = f.numbers("no_rope_layers")
    if rotary and index < len(rotary):
        return CHUNKED if rotary[index] else FULL
    return CHUNKED if (index + 1) % f.count("no_rope_layer_interval", default=4) else FULL


def _period(f: Fields, index: int) -> str:
    """Qwen3-Next: every so many layers one with attention, a linear one else."""
    return LINEAR if (index + 1) % f.count("full_attention_interval", default=4) else FULL


_RULES: dict[str, Callable[[Fields, int], str]] = {
    "all": _every,
    "none": _none,
    "qwen": _qwen,
    "alternate": _pattern(2),
    "every 4th full": _pattern(4),
    "every 6th full": _pattern(6),
    "llama4": _llama4,
    "linear": _period,
}
