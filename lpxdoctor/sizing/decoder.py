"""One layer's blocks in, as fields of a config; what they weigh and what they keep out."""

from collections import Counter
from dataclasses import dataclass

from lpxdoctor.sizing.cache import Attention
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.weights import Part, Tally

Switch = tuple[str, bool]  # the field that says so, "" for none; and what holds without it
NEVER: Switch = ("", False)
ALWAYS: Switch = ("", True)
_KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups")


@dataclass(frozen=True, kw_only=True)
class Style:
    """What distinguishes the layers of a family of decoders.

    norms counts the vectors of the hidden size in a layer, twice for norms that have a bias. qk_norm is "head" for
    vectors of one head's size, "full" for vectors of all heads. window names a rule of reach.py. tied is what a config
    that does not say means.
    """

    qkv_bias: Switch = NEVER
    o_bias: Switch = NEVER
    mlp_bias: Switch = NEVER
    head_bias: Switch = NEVER
    qk_norm: str = ""
    has_qk_norm: Switch = ALWAYS
    norms: int = 2
    final_norms: int = 1
    gated: bool = True
    tied: bool = False
    window: str = "none"


def heads(f: Fields) -> tuple[int, int, int]:
    """Return (attention heads, KV heads, elements a head).

    As vLLM 0.32 finds them (transformers_utils/model_arch_config_convertor.py): Falcon's newer layout has KV heads of
    its own, and multi_query means nothing there.
    """
    count = f.count("num_attention_heads", "n_head", most=1 << 20)
    kv = f.count(*_KV_HEADS, default=count, most=1 << 20)
    if f.flag("multi_query") and not f.flag("new_decoder_architecture") and "multi_query_group_num" not in f:
        kv = 1
    size = f.optional("head_dim") or f.count("hidden_size", "n_embd") // count
    if size == 0:
        raise f.wrong("num_attention_heads", f"is {count}, more than hidden_size")
    if kv > count or count % kv:
        raise f.wrong("num_key_value_heads", f"is {kv}, which does not divide num_attention_heads, {count}")
    return count, kv, size


def kept(f: Fields) -> Attention:
    """Return what a layer of ordinary attention (MHA, GQA, MQA) keeps."""
    _, kv, size = heads(f)
    return Attention(heads=kv, key=size, value=size)


def attention(f: Fields, style: Style, *, gate: bool = False) -> Tally:
    """Return the weights of ordinary attention; gate: the query projection also makes an output gate."""
    hidden = f.count("hidden_size")
    count, kv, size = heads(f)
    query, key = count * size, kv * size
    linear = hidden * (query * (2 if gate else 1) + 2 * key) + query * hidden
    biases = (query * (2 if gate else 1) + 2 * key) * _has(f, style.qkv_bias) + hidden * _has(f, style.o_bias)
    norms = {"head": 2 * size, "full": query + key}.get(style.qk_norm, 0) * _has(f, style.has_qk_norm)
    return Counter({Part.LINEAR: linear, Part.KEPT: biases + norms})


def mlp(f: Fields, style: Style, size: int) -> Tally:
    """Return the weights of a dense feed-forward block of an inner size."""
    hidden = f.count("hidden_size")
    up = 2 if style.gated else 1
    biases = (up * size + hidden) * _has(f, style.mlp_bias)
    return Counter({Part.LINEAR: (up + 1) * hidden * size, Part.KEPT: biases})


def experts(hidden: int, count: int, size: int, *, gated: bool = True) -> Tally:
    """Return the weights of routed experts and their router."""
    matrices = 3 if gated else 2
    return Counter({Part.EXPERTS: count * matrices * hidden * size, Part.KEPT: hidden * count})


def vocabulary(f: Fields, style: Style) -> tuple[Tally, bool]:
    """Return the weights of embedding, output head and final norm, and whether head and embedding are one."""
    hidden, words = f.count("hidden_size"), f.count("vocab_size")
    tied = f.flag("tie_word_embeddings", default=style.tied)
    tally = Counter({Part.HEAD: words * hidden, Part.KEPT: style.final_norms * hidden})
    if not tied:
        tally[Part.EMBEDDING] = words * hidden
    tally[Part.KEPT] += words * _has(f, style.head_bias)
    return tally, tied


def norms(f: Fields, style: Style) -> Tally:
    """Return the weights of a layer's norms."""
    return Counter({Part.KEPT: style.norms * f.count("hidden_size")})


def times(tally: Tally, count: int) -> Tally:
    """Return the weights of so many such blocks."""
    return Counter({part: number * count for part, number in tally.items()})


def _has(f: Fields, switch: Switch) -> bool:
    name, default = switch
    return f.flag(name, default=default) if name else default
