"""The families that mix attention with layers of constant state: what they weigh and what their layers keep."""

from collections import Counter
from dataclasses import dataclass

from lpxdoctor.sizing.cache import Layer, State
from lpxdoctor.sizing.decoder import Style, Switch, attention, experts, kept, mlp, norms, vocabulary
from lpxdoctor.sizing.fields import LAYERS_MOST, Fields
from lpxdoctor.sizing.mixtures import qwen
from lpxdoctor.sizing.reach import FULL, LINEAR, layer_types
from lpxdoctor.sizing.weights import Part, Tally

Counted = tuple[Tally, bool, tuple[Layer, ...]]
_BIAS: Switch = ("attention_bias", False)
_FP32 = 4
_STATE_BYTES = {"float32": _FP32, "bfloat16": 2, "float16": 2}


def qwen3_next(f: Fields) -> Counted:
    """Qwen3-Next: gated delta nets, every fourth layer gated attention, experts with a shared one in all."""
    return _gated_delta(f, state_bytes=None)


def qwen3_5(f: Fields) -> Counted:
    """Qwen3.5, dense and MoE: as Qwen3-Next, the state in fp32 as its config asks."""
    return _gated_delta(f, state_bytes=_STATE_BYTES.get(f.word("mamba_ssm_dtype")))


def _gated_delta(f: Fields, *, state_bytes: int | None) -> Counted:
    style = Style(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head")
    tally, tied = vocabulary(f, style)
    hidden = f.count("hidden_size")
    keys, values = f.count("linear_num_key_heads"), f.count("linear_num_value_heads")
    key, value = f.count("linear_key_head_dim"), f.count("linear_value_head_dim")
    kernel = f.count("linear_conv_kernel_dim", default=4, least=2)
    channels = 2 * keys * key + values * value
    linear = Counter(
        {
            # queries, keys, values and the output gate; two numbers a value head; and back
            Part.LINEAR: hidden * (channels + values * value) + hidden * 2 * values + values * value * hidden,
            Part.KEPT: channels * kernel + 2 * values + value,
        }
    )
    state = State(((channels * (kernel - 1), None), (values * value * key, state_bytes)))
    layers: list[Layer] = []
    for index, kind in enumerate(layer_types(f, "linear")):
        tally = tally + norms(f, style) + _feed_forward(f, style, index)
        tally = tally + (linear if kind == LINEAR else attention(f, style, gate=True))
        layers.append(state if kind == LINEAR else kept(f))
    return tally, tied, tuple(layers)


def _feed_forward(f: Fields, style: Style, index: int) -> Tally:
    return qwen(f, style, index) if f.optional("num_experts") else mlp(f, style, f.count("intermediate_size"))


@dataclass(frozen=True, kw_only=True)
class _Mamba2:
    """A Mamba-2 mixer's sizes: of the hidden state, its heads and a head, groups, state and convolution."""

    hidden: int
    heads: int
    head: int
    groups: int
    size: int
    kernel: int
    conv_bias: bool
    bias: bool

    @property
    def channels(self) -> int:
        """What its convolution runs over."""
        return self.heads * self.head + 2 * self.groups * self.size

    def tally(self) -> Tally:
        """Return its weights."""
        inner = self.heads * self.head
        made = inner + self.channels + self.heads
        biases = self.channels * self.conv_bias + (made + self.hidden) * self.bias
        return Counter(
            {
                Part.LINEAR: self.hidden * made + inner * self.hidden,
                Part.KEPT: self.channels * self.kernel + 3 * self.heads + inner + biases,
            }
        )

    def state(self, state_bytes: int | None) -> State:
        """Return what it keeps; state_bytes of one element of the state, None for the model's own type."""
        tensors = ((self.channels * (self.kernel - 1), None), (self.heads * self.head * self.size, state_bytes))
        return State(tensors, copies=3)  # one more for a checkpoint inside a prefill: vLLM's mamba_mixer2.py


def granite(f: Fields) -> Counted:
    """Granite 4: Mamba-2 or attention, then experts, where there are any, and a shared one."""
    style = Style(qkv_bias=_BIAS, o_bias=_BIAS)
    tally, tied = vocabulary(f, style)
    hidden, count = f.count("hidden_size"), f.count("num_local_experts", default=0, least=0, most=1 << 20)
    heads = f.count("mamba_n_heads", default=128)
    head = f.any_of("mamba_d_head")  # "auto" is a value
    mixer = _Mamba2(
        hidden=hidden,
        heads=heads,
        head=f.count("mamba_d_head") if head not in (None, "auto") else max(_inner(f) // heads, 1),
        groups=f.count("mamba_n_groups", default=1),
        size=f.count("mamba_d_state", default=256),
        kernel=f.count("mamba_d_conv", default=4, least=2),
        conv_bias=f.flag("mamba_conv_bias", default=True),
        bias=f.flag("mamba_proj_bias"),
    )
    layers: list[Layer] = []
    for kind in layer_types(f, "none"):
        tally = tally + norms(f, style) + mlp(f, style, f.count("shared_intermediate_size", default=1024))
        if count:
            tally = tally + experts(hidden, count, f.count("intermediate_size"))
        attends = kind in (FULL, "attention")
        tally = tally + (attention(f, style) if attends else mixer.tally())
        layers.append(kept(f) if attends else mixer.state(None))
    return tally, tied, tuple(layers)


def _inner(f: Fields) -> int:
    return f.count("mamba_expand", default=2) * f.count("hidden_size")


def nemotron_h(f: Fields) -> Counted:
    """Nemotron-H: each layer one of Mamba-2 (M), attention (*), a feed-forward block (-) or experts (E)."""
    style = Style(qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias=("mlp_bias", False), gated=False, norms=1)
    tally, tied = vocabulary(f, style)
    mixer = _Mamba2(
        hidden=f.count("hidden_size"),
        heads=f.count("mamba_num_heads"),
        head=f.count("mamba_head_dim"),
        groups=f.count("n_groups", default=8),
        size=f.count("ssm_state_size", default=128),
        kernel=f.count("conv_kernel", default=4, least=2),
        conv_bias=f.flag("use_conv_bias", default=True),
        bias=f.flag("use_bias"),
    )
    # vLLM keeps the state in fp32 unless the config says otherwise (NemotronHForCausalLMConfig).
    state = mixer.state(_STATE_BYTES.get(f.word("mamba_ssm_cache_dtype", default="float32"), _FP32))
    blocks = {"M": mixer.tally(), "*": attention(f, style)}
    keeps: dict[str, Layer] = {"M": state, "*": kept(f)}
    layers: list[Layer] = []
    for letter in _pattern(f):
        if letter == "-":
            blocks["-"] = mlp(f, style, f.count("intermediate_size"))
        if letter == "E":
            blocks["E"] = _nemotron_experts(f, style)
        tally = tally + norms(f, style) + blocks[letter]
        if letter in keeps:
            layers.append(keeps[letter])
    if not layers:
        raise f.wrong("hybrid_override_pattern", "has neither M nor *: no layer keeps anything")
    return tally, tied, tuple(layers)


def _pattern(f: Fields) -> str:
    """Return a letter for each layer; newer configs name the blocks."""
    pattern = f.word("hybrid_override_pattern")
    if not pattern and isinstance(named := f.any_of("layers_block_type"), list):
        letters = {"mamba": "M", LINEAR: "M", "attention": "*", FULL: "*", "mlp": "-", "moe": "E"}
        pattern = "".join(letters.get(name, "?") if isinstance(name, str) else "?" for name in named)
    if not pattern or len(pattern) > LAYERS_MOST or set(pattern) - set("M*-E"):
        raise f.wrong("hybrid_override_pattern", "must be a letter a layer: M, *, - or E")
    return pattern


def _nemotron_experts(f: Fields, style: Style) -> Tally:
    count, size = f.count("n_routed_experts", most=1 << 20), f.count("moe_intermediate_size")
    inner = f.optional("moe_latent_size") or f.count("hidden_size")
    tally = experts(inner, count, size, gated=False) + Counter({Part.KEPT: count})
    if inner != f.count("hidden_size"):
        hidden = f.count("hidden_size")
        tally = tally + Counter({Part.LINEAR: 2 * hidden * inner, Part.KEPT: (hidden - inner) * count})
    shared = f.optional("n_shared_experts")
    return tally + mlp(f, style, f.count("moe_shared_expert_intermediate_size")) if shared else tally


def lfm2(f: Fields) -> Counted:
    """LFM2: short convolutions, and attention where layer_types or full_attn_idxs say so."""
    style = Style(qk_norm="head", tied=True)
    tally, tied = vocabulary(f, style)
    hidden, kernel = f.count("hidden_size"), f.count("conv_L_cache", default=3, least=2)
    width = f.count("conv_dim", default=hidden)
    bias = f.flag("conv_bias")
    convolution = Counter(
        {Part.LINEAR: hidden * 3 * hidden + hidden * hidden, Part.KEPT: hidden * kernel + bias * 5 * hidden}
    )
    inner = _lfm2_inner(f)
    attends = f.numbers("full_attn_idxs")
    types = f.words("layer_types", f.layers()) or tuple(
        "full_attention" if not attends or index in attends else "conv" for index in range(f.layers())
    )
    layers: list[Layer] = []
    for kind in types:
        tally = tally + norms(f, style) + mlp(f, style, inner)
        tally = tally + (convolution if kind == "conv" else attention(f, style))
        layers.append(State(((width * (kernel - 1), None),)) if kind == "conv" else kept(f))
    return tally, tied, tuple(layers)


def _lfm2_inner(f: Fields) -> int:
    """Return the feed-forward block's inner size, which the config gives before its adjustment."""
    size = f.count("intermediate_size", "block_ff_dim")
    if f.flag("block_auto_adjust_ff_dim", default=True):
        size = 2 * size // 3
        multiple = f.count("block_multiple_of", default=256)
        factor = f.any_of("block_ffn_dim_multiplier")
        if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < LAYERS_MOST:
            size = int(factor * size)
        size = multiple * -(-size // multiple)
    return max(size, 1)
