"""The engine's pool of KV blocks: what vLLM itself answered for small models of every kind, and each rule."""

from typing import Any

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.cache import Attention, Layer, State
from lpxdoctor.sizing.families import shape
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.pool import Pool, pool
from tests.sizing import configs

GIB = 1 << 30
SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
    "torch_dtype": "bfloat16",
}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_hidden_layers": 8,
    "head_dim": 64,
}
LATENT: dict[str, Any] = {
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
WINDOWS = ["sliding_attention"] * 3 + ["full_attention"]
# kv_cache_size_tokens of vLLM 0.32.0 on the CPU with VLLM_CPU_KVCACHE_SPACE=1 and --max-model-len 3000, measured
# 2026-11-29: (config, tokens in flight, tokens a block, capacity). States are fp32 on the CPU, whatever the type.
MEASURED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "GQA": ({"model_type": "qwen2"}, 4096, 128, 512_000),
    "window in every layer": ({"model_type": "mistral", "sliding_window": 256}, 4096, 128, 491_520),
    "windows and full, 5:1": (
        {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 13, "sliding_window": 128},
        *(4096, 128, 141_241),
    ),
    "windows and full, 1:1": (
        {"model_type": "gemma2", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 128},
        *(4096, 128, 334_346),
    ),
    "windows and full, 3 and 2": (
        {
            "model_type": "gpt_oss",
            "head_dim": 64,
            "num_hidden_layers": 5,
            "sliding_window": 128,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        *(4096, 128, 332_108),
    ),
    "windows and full, 3:1, by list": (
        {"model_type": "olmo3", "num_hidden_layers": 8, "sliding_window": 128, "layer_types": WINDOWS * 2},
        *(4096, 128, 248_242),
    ),
    "one token more than the window": (
        {"model_type": "cohere2", "head_dim": 64, "num_hidden_layers": 8, "sliding_window": 128},
        *(4096, 128, 248_242),
    ),
    "chunks and full, 3:1": (
        {
            "model_type": "llama4_text",
            "head_dim": 64,
            "num_hidden_layers": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 512,
            "attention_chunk_size": 256,
        },
        *(4096, 128, 256_000),
    ),
    "latent": ({"model_type": "deepseek_v3", **LATENT}, 3000, 16, 232_388),
    "delta nets and full, 3:1": ({"model_type": "qwen3_next", **DELTA}, 4096, 128, 682_666),
    "Mamba-2, attention, dense": (
        {
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "M-M*-M",
            "num_hidden_layers": 6,
            "head_dim": 64,
            "mamba_num_heads": 8,
            "mamba_head_dim": 32,
            "n_groups": 2,
            "ssm_state_size": 64,
        },
        *(4096, 128, 1_170_285),
    ),
    "Mamba-2 and attention": (
        {
            "model_type": "granitemoehybrid",
            "layer_types": ["mamba", "mamba", "attention", "mamba"],
            "mamba_n_heads": 8,
            "mamba_d_head": 64,
            "mamba_d_state": 64,
        },
        *(4096, 128, 963_705),
    ),
    "short convolutions": (
        {
            "model_type": "lfm2",
            "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
            "num_hidden_layers": 5,
        },
        *(4096, 128, 877_714),
    ),
}


def in_fp32(layer: Layer) -> Layer:
    if isinstance(layer, Attention) or len(layer.tensors) == 1:
        return layer
    convolution, (count, _) = layer.tensors
    return State((convolution, (count, 4)), layer.copies)


@pytest.mark.parametrize("kind", MEASURED)
def test_the_capacity_is_what_vllm_answered(kind: str) -> None:
    config, in_flight, block_tokens, capacity = MEASURED[kind]
    found = shape(Fields({**SMALL, **config}, kind))
    assert found is not None
    layers = [in_fp32(layer) for layer in found.layers]
    assert pool(layers, "auto", 2, in_flight=in_flight, block_tokens=block_tokens).tokens(GIB, 3000) == capacity


def test_the_capacity_in_fp8_is_what_vllm_answered() -> None:  # likewise, with --kv-cache-dtype fp8
    config, in_flight, block_tokens, _ = MEASURED["GQA"]
    found = shape(Fields({**SMALL, **config}, "GQA"))
    assert found is not None
    assert pool(found.layers, "fp8", 2, in_flight=in_flight, block_tokens=block_tokens).tokens(GIB, 3000) == 1_024_000


def of(name: str, form: str = "auto", **options: Any) -> Pool:
    found = shape(Fields(getattr(configs, name), name))
    assert found is not None
    return pool(found.layers, form, 2, **options)


@pytest.mark.parametrize(
    ("form", "size"),
    [
        ("auto", 131_072),
        ("bfloat16", 131_072),
        ("fp8", 65_536),
        ("fp8_e5m2", 65_536),
        ("nvfp4", 2 * 32 * 8 * 72),  # 64 + 8 bytes a vector of 128
        ("int8_per_token_head", 2 * 32 * 8 * 132),
        ("fp8_per_token_head", 2 * 32 * 8 * 132),
        ("int4_per_token_head", 2 * 32 * 8 * 68),
    ],
)
def test_each_format_has_its_bytes(form: str, size: int) -> None:
    assert of("LLAMA_31_8B", form).token_bytes == size


@pytest.mark.parametrize(
    ("form", "size"), [("auto", 70_272), ("fp8", 35_136), ("fp8_ds_mla", 61 * 656), ("nvfp4_ds_mla", 61 * 352)]
)
def test_latent_attention_has_formats_of_its_own(form: str, size: int) -> None:
    assert of("DEEPSEEK_V3", form).token_bytes == size


@pytest.mark.parametrize("form", ["nvfp4", "int8_per_token_head", "int4_per_token_head"])
def test_latent_attention_has_no_heads_for_the_others(form: str) -> None:
    with pytest.raises(UsageError, match=form):
        of("DEEPSEEK_V3", form)


def test_a_format_for_latent_attention_holds_no_other() -> None:
    with pytest.raises(UsageError, match="fp8_ds_mla"):
        of("LLAMA_31_8B", "fp8_ds_mla")
    with pytest.raises(UsageError, match="16 elements"):
        pool([Attention(heads=2, key=72, value=72)], "nvfp4", 2)


@pytest.mark.parametrize(("count", "size"), [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384)])
def test_gpus_share_kv_heads_until_each_has_one(count: int, size: int) -> None:
    assert of("LLAMA_31_8B", tensor_parallel=count).token_bytes == size


def test_gpus_do_not_share_a_latent_vector_but_a_state() -> None:
    assert of("DEEPSEEK_V3", tensor_parallel=8).token_bytes == 70_272
    whole, half = of("QWEN_3_NEXT_80B"), of("QWEN_3_NEXT_80B", tensor_parallel=2)
    assert half.state_bytes * 2 == whole.state_bytes


def test_keys_and_values_may_differ_in_size() -> None:
    assert pool([Attention(heads=4, key=192, value=128)], "auto", 2).token_bytes == 4 * (192 + 128) * 2


def test_a_request_takes_whole_blocks() -> None:
    llama = of("LLAMA_31_8B")
    assert llama.block_bytes == 16 * 131_072
    assert [llama.request_blocks(context) for context in (1, 16, 17, 8192)] == [1, 1, 2, 512]
    assert llama.request_bytes(8192) == 8192 * 131_072


def test_a_window_costs_no_more_than_itself_what_is_in_flight_and_a_block() -> None:
    mistral = of("MISTRAL_7B_01", in_flight=4096)
    assert mistral.request_blocks(32768) == -(-(4095 + 4096) // 16) + 1
    assert mistral.request_blocks(1000) == -(-1000 // 16) + 1


def test_one_block_is_never_given_out() -> None:
    llama = of("LLAMA_31_8B")
    assert llama.requests(10 * llama.request_bytes(8192), 8192) == 9
    assert llama.requests(10 * llama.request_bytes(8192) + llama.block_bytes, 8192) == 10
    assert llama.requests(-GIB, 8192) == llama.requests(0, 8192) == 0


def test_the_longest_context_is_the_last_that_fits() -> None:
    llama, room = of("LLAMA_31_8B"), 5 * GIB
    longest = llama.longest(room, 3, None)
    assert llama.requests(room, longest) == 3
    assert llama.requests(room, longest + 1) < 3
    assert llama.longest(room, 3, 1000) == 1000
    assert llama.longest(0, 1, 1000) == 0


def test_a_step_reads_what_each_layer_sees() -> None:
    oss = of("GPT_OSS_20B")
    layer = 2 * 8 * 64 * 2
    assert oss.read_bytes(1000) == 12 * layer * 1000 + 12 * layer * 128
    hybrid = of("QWEN_3_NEXT_80B")
    assert hybrid.read_bytes(1000) == hybrid.state_bytes + 1000 * 24_576


def test_states_alone_are_a_pool_too() -> None:
    states = pool([State(((1000, None), (5000, 4)))] * 3, "auto", 2)
    assert (states.token_bytes, states.state_bytes) == (0, 3 * 22_000)
    assert states.requests(10 * 66_000, 1) == states.requests(10 * 66_000, 100_000) == 9


def test_without_prefix_caching_a_state_is_held_once() -> None:
    with_, without = of("QWEN_3_NEXT_80B"), of("QWEN_3_NEXT_80B", prefix_caching=False)
    assert with_.request_blocks(1) == 1 + 3 * 2
    assert without.request_blocks(1) == 1 + 3


def test_layers_of_unlike_size_that_see_everything_share_blocks() -> None:
    layers = [Attention(heads=2, key=64, value=64), Attention(heads=8, key=64, value=64)]
    mixed = pool(layers, "auto", 2)
    assert mixed.block_bytes == 16 * mixed.token_bytes == 16 * (512 + 2048)
    assert mixed.request_blocks(160) == 10


def test_layers_of_unlike_size_and_reach_get_pages_of_one_size() -> None:
    small = Attention(heads=1, key=64, value=64, window=128)
    even = pool([small, Attention(heads=4, key=64, value=64)], "auto", 2, in_flight=0)
    assert [group.spec.tokens for group in even.groups] == [64, 16]
    uneven = pool([small, Attention(heads=3, key=64, value=40)], "auto", 2, in_flight=0)
    assert {group.spec.page_bytes for group in uneven.groups} == {16 * 3 * 104 * 2}
    assert [group.spec.tokens for group in uneven.groups] == [16, 16]
