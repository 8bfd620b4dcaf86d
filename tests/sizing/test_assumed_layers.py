"""Model types that no table has: what their layers keep is assumed from the names of their fields, or refused."""

from typing import Any

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.cache import Attention
from lpxdoctor.sizing.families import assumed_layers, known, shape
from lpxdoctor.sizing.fields import Fields
from tests.sizing import configs

# Parameters that the models' pages on huggingface.co tell (from the safetensors files), without heads for speculative
# decoding; of the quantized ones, those of the model that was quantized.


def test_an_unknown_type_is_none_and_its_layers_are_assumed_by_name_of_fields() -> None:
    fields = Fields({**configs.LLAMA_31_8B, "model_type": "brand_new"}, "new")
    assert shape(fields) is None
    assert assumed_layers(fields) == (Attention(heads=8, key=128, value=128),) * 32
    assert "brand_new" not in known()


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"n_head": 48, "n_embd": 6144, "n_layer": 40, "multi_query": True}, 1),  # StarCoder
        ({"n_head": 48, "n_embd": 6144, "n_layer": 40, "multi_query": False}, 48),
        # Falcon 7B and 40B: the newer ones have multi_query too, and it means nothing in them
        ({"num_attention_heads": 71, "hidden_size": 4544, "num_kv_heads": 71, "multi_query": True}, 1),
        (
            {
                "num_attention_heads": 128,
                "hidden_size": 8192,
                "num_kv_heads": 8,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            8,
        ),
        ({"num_attention_heads": 32, "hidden_size": 4096, "multi_query_group_num": 2}, 2),  # ChatGLM3
    ],
)
def test_kv_heads_are_read_by_all_names_that_vllm_knows(fields: dict[str, Any], kv_heads: int) -> None:
    found = assumed_layers(Fields({"model_type": "brand_new", "num_hidden_layers": 40, **fields}, "x"))
    assert len(found) == 40
    assert {layer.heads for layer in found if isinstance(layer, Attention)} == {kv_heads}


@pytest.mark.parametrize(
    "sign",
    [
        {"kv_lora_rank": 512},  # MiniCPM3
        {"mamba_d_state": 16},  # Jamba, Falcon-H1, Bamba
        {"state_size": 16},  # Mamba
        {"attn_type_list": [0, 1]},  # MiniMax
    ],
)
def test_an_unknown_type_that_does_not_attend_in_the_ordinary_way_is_refused(sign: dict[str, Any]) -> None:
    """Its weights may be read from files, but what its layers keep would be a guess."""
    other = {**configs.LLAMA_31_8B, "model_type": "brand_new", **sign}
    with pytest.raises(UsageError, match=rf"brand_new.*{next(iter(sign))}.*not the ordinary"):
        assumed_layers(Fields(other, "new"))


def test_an_unknown_type_that_says_it_does_not_slide_does_not() -> None:
    slides_not = {**configs.QWEN_25_7B, "model_type": "brand_new"}
    assert {layer.window for layer in assumed_layers(Fields(slides_not, "x")) if isinstance(layer, Attention)} == {None}
    slides = {**configs.MISTRAL_7B_01, "model_type": "brand_new"}
    assert {layer.window for layer in assumed_layers(Fields(slides, "x")) if isinstance(layer, Attention)} == {4096}
