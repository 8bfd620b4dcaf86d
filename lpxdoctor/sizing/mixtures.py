"""The feed-forward blocks with routed experts, family by family, and DeepSeek's latent attention: what they weigh."""

from collections import Counter
from collections.abc import Callable

from lpxdoctor.sizing.cache import Attention
from lpxdoctor.sizing.decoder import Style, experts, mlp
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.weights import Part, Tally

Block = Callable[[Fields, Style, int], Tally]
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_MOST = 1 << 20
_INDEX_BYTES = 132  # DeepSeek V3.2's index: 128 elements of 8 bit and an fp32 scale. vLLM's DeepseekV32IndexerCache


def routing(f: Fields) -> tuple[int, int]:
    """Return (routed experts a layer, those of them that a token goes through); zeros for a dense model."""
    count = f.count(*_EXPERTS, default=0, least=0, most=_EXPERTS_MOST)
    used = f.count("num_experts_per_tok", "moe_k", "moe_topk", default=0, least=0, most=_EXPERTS_MOST)
    if used > count:
        raise f.wrong("num_experts_per_tok", f"is {used}, more than there are experts, {count}")
    return count, used


def mixtral(f: Fields, _: Style, _index: int) -> Tally:
    """Mixtral, Phi-MoE: every layer routed, experts of intermediate_size."""
    return experts(f.count("hidden_size"), f.count(*_EXPERTS, most=_EXPERTS_MOST), f.count("intermediate_size"))


def qwen(f: Fields, style: Style, index: int) -> Tally:
    """Qwen MoE, OLMoE: routed every decoder_sparse_step layers, with a shared expert and its gate in some."""
    hidden = f.count("hidden_size")
    step = f.count("decoder_sparse_step", default=1)
    if index in f.numbers("mlp_only_layers") or (index + 1) % step:
        return mlp(f, style, f.count("intermediate_size"))
    routed = experts(
        hidden, f.count(*_EXPERTS, most=_EXPERTS_MOST), f.count("moe_intermediate_size", "intermediate_size")
    )
    shared = f.optional("shared_expert_intermediate_size")
    return routed + mlp(f, style, shared) + Counter({Part.KEPT: hidden}) if shared else routed


def deepseek(f: Fields, style: Style, index: int) -> Tally:
    """DeepSeek, Kimi K2, GLM-4 MoE: the first layers dense, the others with shared experts and, in some, biases."""
    count = f.optional("n_routed_experts")
    frequency = f.count("moe_layer_freq", default=1)
    if not count or index < f.count("first_k_dense_replace", default=0, least=0) or index % frequency:
        return mlp(f, style, f.count("intermediate_size"))
    size = f.count("moe_intermediate_size")
    tally = experts(f.count("hidden_size"), count, size)
    shared = f.optional("n_shared_experts")
    if shared:
        tally = tally + mlp(f, style, shared * size)
    if f.word("model_type") != "deepseek_v2":
        tally = tally + Counter({Part.KEPT: count})  # e_score_correction_bias
    return tally


def gpt_oss(f: Fields, _: Style, _index: int) -> Tally:
    """gpt-oss: every layer routed, with a bias everywhere and a sink for each attention head."""
    hidden, size = f.count("hidden_size"), f.count("intermediate_size")
    count = f.count(*_EXPERTS, most=_EXPERTS_MOST)
    biases = count * (2 * size + hidden) + count + f.count("num_attention_heads")
    return experts(hidden, count, size) + Counter({Part.KEPT: biases})


def ernie(f: Fields, style: Style, index: int) -> Tally:
    """ERNIE 4.5 MoE: routed from moe_layer_start_index on, every moe_layer_interval layers, with a bias an expert."""
    first, last = f.count("moe_layer_start_index", default=1, least=0), f.layers() - 1
    last = min(last, f.count("moe_layer_end_index", default=last, least=0)) if _positive(f) else last
    if not first <= index <= last or (index + 1) % f.count("moe_layer_interval", default=1):
        return mlp(f, style, f.count("intermediate_size"))
    count, size = f.count(*_EXPERTS, most=_EXPERTS_MOST), f.count("moe_intermediate_size")
    shared = f.optional("moe_num_shared_experts") or 0
    tally = experts(f.count("hidden_size"), count, size) + Counter({Part.KEPT: count})
    return tally + mlp(f, style, shared * size) if shared else tally


def _positive(f: Fields) -> bool:
    return f.any_of("moe_layer_end_index") not in (None, -1)  # -1: to the end


def llama4(f: Fields, style: Style, index: int) -> Tally:
    """Llama 4: routed every interleave_moe_layer_step layers, with a shared expert; dense ones have another size."""
    hidden, size = f.count("hidden_size"), f.count("intermediate_size")
    step = f.count("interleave_moe_layer_step", default=1)
    chosen = f.numbers("moe_layers")
    if index not in chosen if chosen else (index + 1) % step:
        return mlp(f, style, f.count("intermediate_size_mlp"))
    return experts(hidden, f.count(*_EXPERTS, most=_EXPERTS_MOST), size) + mlp(f, style, size)


def latent_attention(f: Fields) -> Tally:
    """Return the weights of latent attention (MLA): low-rank projections of queries, and of keys and values as one."""
    hidden, heads = f.count("hidden_size"), f.count("num_attention_heads", most=1 << 20)
    nope, rope, value = f.count("qk_nope_head_dim"), f.count("qk_rope_head_dim"), f.count("v_head_dim")
    low, rank = f.count("kv_lora_rank"), f.optional("q_lora_rank")
    query = heads * (nope + rope)
    linear = hidden * rank + rank * query if rank else hidden * query
    linear += hidden * (low + rope) + low * heads * (nope + value) + heads * value * hidden
    kept = low + (rank or 0)
    if f.flag("attention_bias"):
        kept += (rank or 0) + low + rope + hidden
    tally = Counter({Part.LINEAR: linear, Part.KEPT: kept})
    if f.optional("index_topk"):
        tally = tally + _index(f, hidden, rank or hidden)
    return tally


def _index(f: Fields, hidden: int, rank: int) -> Tally:
    """Return the weights of DeepSeek V3.2's index: queries, one key with its norm, and a weight for each head."""
    heads, size = f.count("index_n_heads"), f.count("index_head_dim")
    return Counter({Part.LINEAR: rank * heads * size + hidden * size, Part.KEPT: 2 * size + hidden * heads})


def latent_layers(f: Fields) -> tuple[Attention, ...]:
    """Return what layers of latent attention keep: one vector of both ranks, and the index where there is one."""
    size = f.count("kv_lora_rank") + f.count("qk_rope_head_dim")
    layer = Attention(heads=1, key=size, value=0, latent=True)
    index = (Attention(heads=1, key=1, value=0, latent=True, fixed_bytes=_INDEX_BYTES),)
    return (layer, *(index if f.optional("index_topk") else ())) * f.layers()
