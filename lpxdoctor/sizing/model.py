"""What was typed for MODEL, as config and tensors, in; everything that sizing knows of the model out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing import families, names, precision
from lpxdoctor.sizing.cache import Layer
from lpxdoctor.sizing.fields import Fields, shown
from lpxdoctor.sizing.safetensors import Tensor
from lpxdoctor.sizing.weights import Part, Weights

# vLLM loads 32-bit checkpoints as 16 bit (config/model.py, _resolve_auto_dtype).
_HALF_BYTES = 2
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_SCALED_ALREADY = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
_FACTOR_MOST = 1 << 16
_DTYPES = ("bfloat16", "float16", "float32", "half", "float", "auto")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model.

    Attributes:
        name: how it is called in reports.
        served: what the engine is told to serve: a directory or a hub id.
        architecture: the config's model_type.
        weights: by part.
        layers: what each keeps of a sequence.
        half: "bf16" or "fp16", the 16-bit type of its config.
        kv_format: what vLLM's auto means for it, of cache.FORMATS.
        longest: tokens that its position embeddings allow, None where the config does not say.
        hidden, vocabulary, inner: sizes of what a forward pass makes: per token, per sequence, per token between.
        heads: of its attention, which GPUs that share it must divide; 0 where it has none.
        notes: what was assumed, for people.
    """

    name: str
    served: str
    architecture: str
    weights: Weights
    layers: tuple[Layer, ...]
    half: str
    kv_format: str
    longest: int | None
    hidden: int
    vocabulary: int
    inner: int
    heads: int = 0
    notes: tuple[str, ...] = ()

    @property
    def half_bytes(self) -> int:
        """Bytes of one element of its 16-bit type."""
        return self.weights.half_bytes


def describe(fields: Fields, tensors: Sequence[Tensor], *, name: str, served: str) -> Model:
    """Return a model.

    Args:
        fields: its config.json.
        tensors: of its files, empty where there are none.
        name: for reports.
        served: for the engine's command line.

    Raises:
        UsageError: where a field is absurd, or neither config nor files tell what the weights take.
    """
    notes: list[str] = []
    quantization = fields.part("quantization_config") or fields.part("compression_config")
    scheme = precision.stored_scheme(quantization)
    shape = families.shape(fields)
    if tensors:
        weights = _from_files(fields, tensors, shape, scheme)
    else:
        weights = _from_config(fields, shape, scheme)
        notes.append("weights counted from the config: no safetensors files were read")
    if shape is None:
        notes.append(f"model_type {_type(fields)} is not known: its layers are taken for ordinary attention")
    return Model(
        name=name,
        served=served,
        architecture=_type(fields),
        weights=weights,
        layers=shape.layers if shape else families.assumed_layers(fields),
        half=_half(fields),
        kv_format=precision.stored_kv_format(quantization),
        longest=longest(fields),
        hidden=fields.count("hidden_size", "n_embd"),
        vocabulary=fields.count("vocab_size"),
        inner=_inner(fields),
        heads=fields.count("num_attention_heads", "n_head", default=0, least=0),
        notes=tuple(notes),
    )


def _from_files(fields: Fields, tensors: Sequence[Tensor], shape: families.Shape | None, scheme: str) -> Weights:
    tied = shape.tied if shape else fields.flag("tie_word_embeddings")
    stored = names.sort(tensors, fields.layers(), tied=tied, half_bytes=_HALF_BYTES, quantized=bool(scheme))
    if not stored.bytes[Part.LINEAR] and not stored.bytes[Part.EXPERTS]:
        raise UsageError(f"{fields.where}: the files beside it hold no layer of a language model")
    return Weights(
        parameters=stored.parameters if not scheme else (shape.tally if shape else {}),
        stored=stored.bytes,
        scheme=scheme,
        tied=tied,
        half_bytes=_HALF_BYTES,
        experts=shape.experts if shape else 0,
        experts_per_token=shape.experts_per_token if shape else 0,
        exact=True,
    )


def _from_config(fields: Fields, shape: families.Shape | None, scheme: str) -> Weights:
    if shape is None:
        raise UsageError(
            f"{fields.where}: model_type {_type(fields)} is not known, and without its safetensors files nothing says "
            "how large it is. Type the directory that holds them, or the hub id. Known from the config alone: "
            + ", ".join(families.known())
        )
    if fields.any_of("vision_config", "audio_config") is not None:
        raise UsageError(
            f"{fields.where}: the model also sees or hears, and the config alone does not tell what that part takes. "
            "Type the directory with its safetensors files, or the hub id"
        )
    stored = precision.stored_tally(shape.tally, scheme, _HALF_BYTES)
    if stored is None:
        raise UsageError(
            f"{fields.where}: its quantization is not known, so the config does not tell what the weights take. "
            "Type the directory with its safetensors files, or the hub id"
        )
    return Weights(
        parameters=shape.tally,
        stored=stored,
        scheme=scheme,
        tied=shape.tied,
        half_bytes=_HALF_BYTES,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        exact=False,
    )


def longest(fields: Fields) -> int | None:
    """Return the longest context that the engine accepts for a config, None where nothing bounds it.

    As vLLM 0.32 has it (config/model.py, _get_and_verify_max_len): of several limits the least, times the factor of a
    rotary scaling unless that kind leaves its limit scaled already.
    """
    found = [length for name in _LENGTHS if (length := fields.optional(name)) is not None]
    if not found:
        return None
    given = fields.part("rope_scaling") or fields.part("rope_parameters")
    parts: list[Mapping[str, Any]] = [part for part in given.values() if isinstance(part, dict)]
    parts = parts or [given]  # else one for each kind of layers
    factor = 1.0
    for part in parts:
        kind, by = part.get("rope_type", part.get("type", "default")), part.get("factor")
        if kind not in _SCALED_ALREADY and isinstance(by, int | float) and not isinstance(by, bool):
            factor = float(by)
    if not 1 <= factor <= _FACTOR_MOST:
        raise fields.wrong(
            "rope_scaling", f"has the factor {shown(factor)}, and must have one from 1 to {_FACTOR_MOST}"
        )
    return int(min(found) * factor) if "gemma3" not in _type(fields) else min(found)


def _type(fields: Fields) -> str:
    return fields.word("model_type", default="(none)")[:40]


def _half(fields: Fields) -> str:
    """Return the 16-bit type: the config's own, bf16 for 32 bit."""
    word = fields.word("torch_dtype", "dtype", default="auto").removeprefix("torch.")
    if word not in _DTYPES:
        raise fields.wrong("torch_dtype", f"is {word[:40]!r}, and must be bfloat16, float16 or float32")
    return "fp16" if word in ("float16", "half") else "bf16"


def _inner(fields: Fields) -> int:
    """Return the widest that a token gets inside a feed-forward block: all its experts' inner sizes side by side."""
    usual = 4 * fields.count("hidden_size", "n_embd")
    dense = fields.count("intermediate_size", "intermediate_size_mlp", "n_inner", default=usual)
    routed = fields.count("moe_intermediate_size", default=dense) * fields.count(
        "num_experts_per_tok", "moe_k", default=1, least=0, most=1 << 20
    )
    return max(dense, routed)
