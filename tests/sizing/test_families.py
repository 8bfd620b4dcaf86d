"""What a config alone tells: parameters of published models to the digit, and KV bytes of a token to the byte."""

from typing import Any

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.cache import Attention, State
from lpxdoctor.sizing.families import Shape, shape
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.pool import pool
from lpxdoctor.sizing.weights import Part
from tests.sizing import configs

# Parameters that the models' pages on huggingface.co tell (from the safetensors files), without heads for speculative
# decoding; of the quantized ones, those of the model that was quantized.
PARAMETERS = {
    "LLAMA_31_8B": 8_030_261_248,
    "LLAMA_31_70B": 70_553_706_496,
    "LLAMA_32_1B": 1_235_814_400,
    "QWEN_25_7B": 7_615_616_512,
    "QWEN_25_05B": 494_032_768,
    "QWEN_3_8B": 8_190_735_360,
    "QWEN_3_32B": 32_762_123_264,
    "QWEN_3_30B_A3B": 30_532_122_624,
    "QWEN_15_MOE": 14_315_784_192,
    "MISTRAL_7B_01": 7_241_732_096,
    "MIXTRAL_8X7B": 46_702_792_704,
    "GEMMA_2_9B": 9_241_705_984,
    "GEMMA_3_1B": 999_885_952,
    "PHI_3_MINI": 3_821_079_552,
    "PHI_4": 14_659_507_200,
    "GPT_OSS_20B": 20_914_757_184,
    "GPT_OSS_120B": 116_829_156_672,
    "DEEPSEEK_V2_LITE": 15_706_484_224,
    "DEEPSEEK_V3": 671_026_419_200,
    "QWEN_3_NEXT_80B": 79_674_391_296,
}
# Bytes of one token over all layers in 16 bit: 2 x layers x KV heads x elements a head x 2, of latent attention
# layers x (512 + 64) x 2; hf-mem and vLLM's logs tell the same.
TOKEN_BYTES = {
    "LLAMA_31_8B": 131_072,
    "LLAMA_31_70B": 327_680,
    "LLAMA_32_1B": 32_768,
    "QWEN_25_7B": 57_344,
    "QWEN_25_05B": 12_288,
    "QWEN_3_8B": 147_456,
    "QWEN_3_32B": 262_144,
    "QWEN_3_30B_A3B": 98_304,
    "QWEN_15_MOE": 196_608,  # MHA
    "MISTRAL_7B_01": 131_072,
    "MIXTRAL_8X7B": 131_072,
    "GEMMA_2_9B": 344_064,  # heads of 256, not 3584 / 16
    "GEMMA_3_1B": 26_624,  # MQA
    "PHI_3_MINI": 393_216,  # MHA
    "PHI_4": 204_800,
    "GPT_OSS_20B": 49_152,
    "GPT_OSS_120B": 73_728,
    "DEEPSEEK_V3": 70_272,
    "DEEPSEEK_V2_LITE": 31_104,
    "QWEN_3_NEXT_80B": 24_576,  # 12 of 48 layers attend
}
# The same on each of several GPUs: KV heads are shared out, and repeated where there are fewer than GPUs; the vector
# of latent attention is on each in full.
SHARED_BYTES = {
    ("LLAMA_31_8B", 2): 65_536,
    ("LLAMA_31_8B", 8): 16_384,
    ("LLAMA_31_8B", 16): 16_384,
    ("QWEN_25_7B", 4): 14_336,
    ("GEMMA_3_1B", 4): 26_624,
    ("QWEN_3_NEXT_80B", 8): 12_288,
    ("DEEPSEEK_V3", 8): 70_272,
}
# In the other KV formats, by vLLM's own sizes: fp8 one byte; nvfp4 half a byte and an fp8 scale for every 16 elements.
FORMAT_BYTES = {
    ("LLAMA_31_8B", "fp8"): 65_536,
    ("LLAMA_31_8B", "nvfp4"): 36_864,  # 32 layers x 8 heads x 2 x 72
    ("LLAMA_31_8B", "fp8_per_token_head"): 67_584,  # 32 x 8 x 2 x (128 + 4)
    ("LLAMA_31_8B", "int4_per_token_head"): 34_816,  # 32 x 8 x 2 x (64 + 4)
    ("GPT_OSS_120B", "fp8"): 36_864,
    ("DEEPSEEK_V3", "fp8"): 35_136,
    ("DEEPSEEK_V3", "fp8_ds_mla"): 40_016,  # 61 x 656
    ("DEEPSEEK_V3", "nvfp4_ds_mla"): 21_472,  # 61 x 352
}


def read(name: str, **changes: Any) -> Shape:
    found = shape(Fields({**getattr(configs, name), **changes}, name))
    assert found is not None
    return found


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_were_published(name: str) -> None:
    assert sum(read(name).tally.values()) == PARAMETERS[name]


@pytest.mark.parametrize("name", TOKEN_BYTES)
def test_a_token_takes_so_many_bytes(name: str) -> None:
    assert pool(read(name).layers, "auto", 2).token_bytes == TOKEN_BYTES[name]


@pytest.mark.parametrize(("name", "gpus"), SHARED_BYTES)
def test_on_each_of_several_gpus_a_token_takes_its_share(name: str, gpus: int) -> None:
    assert pool(read(name).layers, "auto", 2, tensor_parallel=gpus).token_bytes == SHARED_BYTES[name, gpus]


@pytest.mark.parametrize(("name", "form"), FORMAT_BYTES)
def test_a_token_takes_fewer_bytes_in_other_formats(name: str, form: str) -> None:
    assert pool(read(name).layers, form, 2).token_bytes == FORMAT_BYTES[name, form]


def test_every_config_here_has_its_count() -> None:
    assert {name for name in vars(configs) if name.isupper()} == set(PARAMETERS) == set(TOKEN_BYTES)


def test_a_tied_head_is_counted_once() -> None:
    tied, untied = read("LLAMA_32_1B"), read("LLAMA_32_1B", tie_word_embeddings=False)
    assert tied.tally[Part.EMBEDDING] == 0
    assert untied.tally[Part.EMBEDDING] == untied.tally[Part.HEAD] == tied.tally[Part.HEAD] == 128256 * 2048


def test_only_the_experts_are_routed() -> None:
    mixtral = read("MIXTRAL_8X7B")
    assert (mixtral.experts, mixtral.experts_per_token) == (8, 2)
    assert mixtral.tally[Part.EXPERTS] == 32 * 8 * 3 * 4096 * 14336
    assert mixtral.tally[Part.LINEAR] == 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024)


def test_biases_and_head_norms_are_counted_where_the_family_has_them() -> None:
    assert read("QWEN_25_7B").tally[Part.KEPT] == 28 * (3584 + 2 * 512 + 2 * 3584) + 3584
    assert read("QWEN_3_8B").tally[Part.KEPT] == 36 * (2 * 4096 + 2 * 128) + 4096
    more = read("LLAMA_31_8B", attention_bias=True, mlp_bias=True)
    biases = 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    assert sum(more.tally.values()) - PARAMETERS["LLAMA_31_8B"] == biases


def windows(found: Shape) -> list[int | None]:
    return [layer.window for layer in found.layers if isinstance(layer, Attention)]


def test_windows_follow_the_familys_rule_or_the_list() -> None:
    assert windows(read("MISTRAL_7B_01")) == [4096] * 32
    assert windows(read("QWEN_25_7B")) == [None] * 28  # use_sliding_window is false
    sliding = read("QWEN_25_7B", use_sliding_window=True, max_window_layers=20)
    assert windows(sliding) == [None] * 20 + [131072] * 8
    assert windows(read("GEMMA_2_9B")) == [4096, None] * 21
    assert windows(read("GEMMA_3_1B"))[:7] == [512] * 5 + [None, 512]
    assert windows(read("GPT_OSS_20B")) == [128, None] * 12
    listed = read("GEMMA_3_1B", layer_types=["full_attention"] * 25 + ["sliding_attention"])
    assert windows(listed) == [None] * 25 + [512]


def test_a_window_of_zero_or_null_is_none() -> None:
    for value in (None, 0):
        assert windows(read("MISTRAL_7B_01", sliding_window=value)) == [None] * 32


def test_cohere_sees_one_token_more_than_its_window() -> None:
    config = {**configs.LLAMA_31_8B, "model_type": "cohere2", "sliding_window": 4096}
    found = shape(Fields(config, "cohere2"))
    assert found is not None
    assert windows(found)[:4] == [4097, 4097, 4097, None]


def test_llama_4_attends_within_chunks_in_three_of_four_layers() -> None:
    config = {
        **configs.LLAMA_31_8B,
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 16384,
    }
    found = shape(Fields(config, "llama4"))
    assert found is not None
    chunks = [layer.chunk for layer in found.layers if isinstance(layer, Attention)]
    assert chunks[:5] == [8192, 8192, 8192, None, 8192]


def test_latent_attention_is_one_vector_and_its_index_another() -> None:
    assert set(read("DEEPSEEK_V3").layers) == {Attention(heads=1, key=576, value=0, latent=True)}
    sparse = shape(
        Fields(
            {
                **configs.DEEPSEEK_V3,
                "model_type": "deepseek_v32",
                "index_topk": 2048,
                "index_n_heads": 64,
                "index_head_dim": 128,
            },
            "v3.2",
        )
    )
    assert sparse is not None
    assert len(sparse.layers) == 122
    assert pool(sparse.layers, "fp8_ds_mla", 2).token_bytes == 61 * (656 + 132)


def test_a_state_is_kept_where_there_is_no_attention() -> None:
    layers = read("QWEN_3_NEXT_80B").layers
    assert [isinstance(layer, State) for layer in layers] == [True, True, True, False] * 12
    # a convolution over 3 x 8192 channels and 32 matrices of 128 x 128, in 16 bit
    assert layers[0] == State(((3 * 8192, None), (32 * 128 * 128, None)))


def test_hybrids_that_name_their_layers_otherwise() -> None:
    mamba = {"mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128}
    base = {**configs.LLAMA_31_8B, **mamba, "num_hidden_layers": 4, "head_dim": 128}
    letters = shape(Fields({**base, "model_type": "nemotron_h", "hybrid_override_pattern": "M-*M"}, "letters"))
    words = ["mamba", "mlp", "attention", "mamba"]
    named = shape(Fields({**base, "model_type": "nemotron_h", "layers_block_type": words}, "words"))
    assert letters is not None
    assert letters == named
    assert [isinstance(layer, State) for layer in letters.layers] == [True, False, True]
    assert letters.layers[0] == State(((3 * 10240, None), (128 * 64 * 128, 4)), copies=3)  # the state in fp32


def test_a_model_inside_a_multimodal_one_is_read() -> None:
    nested = {"model_type": "gemma3", "text_config": configs.GEMMA_3_1B, "torch_dtype": "bfloat16"}
    found = shape(Fields(nested, "gemma3"))
    assert found == read("GEMMA_3_1B")


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("LLAMA_31_8B", {"num_hidden_layers": -1}, "num_hidden_layers"),
        ("LLAMA_31_8B", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("LLAMA_31_8B", {"num_attention_heads": 0}, "num_attention_heads"),
        ("LLAMA_31_8B", {"num_attention_heads": 8192, "num_key_value_heads": 8192}, "num_attention_heads"),
        ("LLAMA_31_8B", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("LLAMA_31_8B", {"hidden_size": "big"}, "hidden_size"),
        ("LLAMA_31_8B", {"vocab_size": 3.5}, "vocab_size"),
        ("LLAMA_31_8B", {"vocab_size": True}, "vocab_size"),
        ("LLAMA_31_8B", {"hidden_size": 10**30}, "hidden_size"),
        ("LLAMA_31_8B", {"intermediate_size": None}, "intermediate_size"),
        ("LLAMA_31_8B", {"attention_bias": "no"}, "attention_bias"),
        ("GPT_OSS_20B", {"layer_types": ["full_attention"]}, "layer_types"),
        ("GPT_OSS_20B", {"layer_types": ["ring_attention"] * 24}, "layer_types"),
        ("MIXTRAL_8X7B", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("QWEN_3_30B_A3B", {"mlp_only_layers": [-1]}, "mlp_only_layers"),
        ("DEEPSEEK_V3", {"kv_lora_rank": {}}, "kv_lora_rank"),
        ("QWEN_3_NEXT_80B", {"linear_num_value_heads": []}, "linear_num_value_heads"),
    ],
)
def test_an_absurd_field_is_an_error_with_its_name(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: .*{field}"):
        read(name, **changes)
