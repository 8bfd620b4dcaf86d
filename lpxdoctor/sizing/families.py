"""A config's model_type in; the function that counts such a model's parameters and says what its layers keep, out.

Every count was compared with transformers 5.19's own module of the type, parameter by parameter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing import hybrids, mixtures
from lpxdoctor.sizing.cache import Layer
from lpxdoctor.sizing.decoder import ALWAYS, NEVER, Style, Switch, attention, kept, mlp, norms, times, vocabulary
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.reach import layer_types, within_reach
from lpxdoctor.sizing.weights import Tally


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a config says of a model: its parameters by part, and what each layer keeps of a sequence."""

    tally: Tally
    tied: bool
    layers: tuple[Layer, ...]
    experts: int = 0
    experts_per_token: int = 0


def shape(f: Fields) -> Shape | None:
    """Return what a config says of a model, None for a model_type that is not known.

    Raises:
        UsageError: for a field that is missing or absurd.
    """
    build = _FAMILIES.get(f.word("model_type"))
    return build(f) if build else None


def assumed_layers(f: Fields) -> tuple[Layer, ...]:
    """Return what the layers of an unknown model_type keep, should its fields mean what they mean elsewhere.

    Raises:
        UsageError: for a field that is missing or absurd, or that tells of layers of another kind.
    """
    sign = next((name for name in _OTHERWISE if name in f), None)
    if sign is not None:
        raise UsageError(
            f"{f.where}: model_type {f.word('model_type')[:40]} is not known, and its {sign} says that it is "
            "not the ordinary kind of attention: what it keeps of a request would be a guess"
        )
    return within_reach(f, kept(f), layer_types(f, "qwen" if "use_sliding_window" in f else "all"))


def known() -> tuple[str, ...]:
    """Return the model types that can be counted from a config alone."""
    return tuple(sorted(_FAMILIES))


def _dense(style: Style, *, more: int = 0) -> Callable[[Fields], Shape]:
    """Return the counter of a family of dense decoders."""

    def build(f: Fields) -> Shape:
        words, tied = vocabulary(f, style)
        layer = attention(f, style) + mlp(f, style, f.count("intermediate_size")) + norms(f, style)
        types = layer_types(f, style.window)
        return Shape(
            tally=words + times(layer, f.layers()), tied=tied, layers=within_reach(f, kept(f), types, more=more)
        )

    return build


def _moe(style: Style, block: mixtures.Block) -> Callable[[Fields], Shape]:
    """Return the counter of a family of decoders with routed experts."""

    def build(f: Fields) -> Shape:
        tally, tied = vocabulary(f, style)
        every = attention(f, style) + norms(f, style)
        for index in range(f.layers()):
            tally = tally + every + block(f, style, index)
        count, used = mixtures.routing(f)
        layers = within_reach(f, kept(f), layer_types(f, style.window))
        return Shape(tally=tally, tied=tied, layers=layers, experts=count, experts_per_token=used)

    return build


def _latent(f: Fields) -> Shape:
    """Count DeepSeek's latent attention (MLA) with dense and routed layers."""
    style = Style(mlp_bias=("mlp_bias", False))
    tally, tied = vocabulary(f, style)
    every = mixtures.latent_attention(f) + norms(f, style)
    for index in range(f.layers()):
        tally = tally + every + mixtures.deepseek(f, style, index)
    count, used = mixtures.routing(f)
    layers = mixtures.latent_layers(f)
    return Shape(tally=tally, tied=tied, layers=layers, experts=count, experts_per_token=used)


def _hybrid(count: Callable[[Fields], tuple[Tally, bool, tuple[Layer, ...]]]) -> Callable[[Fields], Shape]:
    """Return the counter of a family that mixes attention with states."""

    def build(f: Fields) -> Shape:
        tally, tied, layers = count(f)
        experts, used = mixtures.routing(f)
        return Shape(tally=tally, tied=tied, layers=layers, experts=experts, experts_per_token=used)

    return build


# Fields of layers that keep a compressed vector or a state.
_OTHERWISE = (
    "kv_lora_rank",
    "mamba_d_state",
    "state_size",
    "ssm_state_size",
    "ssm_cfg",
    "linear_num_value_heads",
    "linear_attn_config",
    "attn_type_list",
    "attn_layer_period",
)

_BIAS: Switch = ("attention_bias", False)
_LLAMA = Style(qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias=("mlp_bias", False))
_GEMMA = replace(_LLAMA, mlp_bias=NEVER, tied=True)
_GEMMA_2 = replace(_GEMMA, norms=4, window="alternate")
_MISTRAL = Style(window="all")
_OLMO = replace(_LLAMA, mlp_bias=NEVER, qk_norm="full")
_QWEN_2 = Style(qkv_bias=ALWAYS, window="qwen")
_QWEN_3 = Style(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", window="qwen")
_COHERE = Style(qkv_bias=_BIAS, o_bias=_BIAS, norms=1, tied=True, qk_norm="full", has_qk_norm=("use_qk_norm", False))
_USE_BIAS = ("use_bias", False)
_ERNIE = Style(qkv_bias=_USE_BIAS, o_bias=_USE_BIAS, mlp_bias=_USE_BIAS, tied=True)
_GLM_4 = Style(qkv_bias=("attention_bias", True), norms=4)
_GLM_4_MOE = Style(qkv_bias=_BIAS, qk_norm="head", has_qk_norm=("use_qk_norm", False))
_GPT_OSS = Style(qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), window="alternate")
_NEMOTRON = replace(_LLAMA, norms=4, final_norms=2, gated=False)
_PHI = Style(qkv_bias=ALWAYS, o_bias=ALWAYS, mlp_bias=ALWAYS, head_bias=ALWAYS, final_norms=2, gated=False)
_PHI_MOE = Style(qkv_bias=_BIAS, o_bias=_BIAS, head_bias=("lm_head_bias", False), norms=4, final_norms=2, window="all")
_SEED = Style(qkv_bias=("attention_bias", True), o_bias=("attention_out_bias", False), mlp_bias=("mlp_bias", False))
_SMOL_3 = replace(_LLAMA, tied=True, window="qwen")
_STARCODER = ("use_bias", True)
_STARCODER_2 = Style(
    qkv_bias=_STARCODER,
    o_bias=_STARCODER,
    mlp_bias=_STARCODER,
    norms=4,
    final_norms=2,
    gated=False,
    tied=True,
    window="all",
)

_FAMILIES: dict[str, Callable[[Fields], Shape]] = {
    "cohere": _dense(_COHERE),
    # A layer with a window sees the token itself beside it: vLLM's commandr.py.
    "cohere2": _dense(replace(_COHERE, qk_norm="", window="every 4th full"), more=1),
    "deepseek_v2": _latent,
    "deepseek_v3": _latent,
    "deepseek_v32": _latent,
    "ernie4_5": _dense(_ERNIE),
    "ernie4_5_moe": _moe(replace(_ERNIE, head_bias=_USE_BIAS), mixtures.ernie),
    "exaone4": _dense(Style(qk_norm="head", window="every 4th full")),
    "gemma": _dense(_GEMMA),
    "gemma2": _dense(_GEMMA_2),
    "gemma3_text": _dense(replace(_GEMMA_2, qk_norm="head", window="every 6th full")),
    "glm4": _dense(_GLM_4),
    "glm4_moe": _moe(_GLM_4_MOE, mixtures.deepseek),
    "gpt_oss": _moe(_GPT_OSS, mixtures.gpt_oss),
    "granite": _dense(_LLAMA),
    "granitemoehybrid": _hybrid(hybrids.granite),
    "kimi_k2": _latent,
    "lfm2": _hybrid(hybrids.lfm2),
    "llama": _dense(_LLAMA),
    "llama4_text": _moe(Style(qkv_bias=_BIAS, o_bias=_BIAS, window="llama4"), mixtures.llama4),
    "mistral": _dense(_MISTRAL),
    "mixtral": _moe(_MISTRAL, mixtures.mixtral),
    "nemotron": _dense(_NEMOTRON),
    "nemotron_h": _hybrid(hybrids.nemotron_h),
    "olmo2": _dense(_OLMO),
    "olmo3": _dense(replace(_OLMO, window="every 4th full")),
    "olmoe": _moe(_OLMO, mixtures.qwen),
    "phi": _dense(_PHI),
    "phi3": _dense(_MISTRAL),
    "phimoe": _moe(_PHI_MOE, mixtures.mixtral),
    "qwen2": _dense(_QWEN_2),
    "qwen2_5_vl": _dense(_QWEN_2),
    "qwen2_5_vl_text": _dense(_QWEN_2),
    "qwen2_moe": _moe(_QWEN_2, mixtures.qwen),
    "qwen3": _dense(_QWEN_3),
    "qwen3_5_moe_text": _hybrid(hybrids.qwen3_5),
    "qwen3_5_text": _hybrid(hybrids.qwen3_5),
    "qwen3_moe": _moe(_QWEN_3, mixtures.qwen),
    "qwen3_vl_moe_text": _moe(_QWEN_3, mixtures.qwen),
    "qwen3_vl_text": _dense(_QWEN_3),
    "qwen3_next": _hybrid(hybrids.qwen3_next),
    "seed_oss": _dense(_SEED),
    "smollm3": _dense(_SMOL_3),
    "starcoder2": _dense(_STARCODER_2),
}
