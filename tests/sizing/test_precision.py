"""A checkpoint's own number format, as quantizers write it into config.json, and what the formats take."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from lpxdoctor.sizing.precision import LOWER, stored_kv_format, stored_scheme, stored_tally
from lpxdoctor.sizing.weights import Part, Weights

FP8_GROUP = {"weights": {"num_bits": 8, "type": "float"}}
INT4_GROUP = {"weights": {"num_bits": 4, "type": "int"}}
GROUP = {"targets": ["Linear"]}


@pytest.mark.parametrize(
    ("quantization", "scheme"),
    [
        ({}, ""),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 3}, "other"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}},
            "int8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float"}}},
            },
            "nvfp4",
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}}, "other"),
        ({"quant_method": "compressed-tensors", "config_groups": []}, "other"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": FP8_GROUP, "b": FP8_GROUP}}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": FP8_GROUP, "b": GROUP}}, "other"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": FP8_GROUP, "b": INT4_GROUP}}, "other"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "other"),
        ({"quant_method": "awq", "bits": []}, "other"),
        ({"quant_method": ["fp8"]}, "other"),
        ({"bits": 4}, "other"),
    ],
)
def test_a_checkpoint_is_stored_as(quantization: dict[str, Any], scheme: str) -> None:
    assert stored_scheme(quantization) == scheme


@pytest.mark.parametrize(
    ("quantization", "form"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": None}, "auto"),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, "auto"),
        ({}, "auto"),
    ],
)
def test_a_checkpoint_asks_for_a_kv_format(quantization: dict[str, Any], form: str) -> None:
    assert stored_kv_format(quantization) == form


def test_bits_with_their_scales() -> None:
    assert {precision.name: float(precision.bits or 0) for precision in LOWER} == {
        "fp8": 8,
        "int8": 8.0078125,  # an fp32 scale a row of 4096
        "nvfp4": 4.5,
        "int4": 4.15625,  # a 16-bit scale and a 4-bit zero a group of 128
    }


def test_what_is_quantized_of_a_checkpoint_that_is_not_there() -> None:
    tally = Counter({Part.HEAD: 100, Part.LINEAR: 100, Part.EXPERTS: 1000})
    assert stored_tally(tally, "", 2) == {Part.HEAD: 200, Part.LINEAR: 200, Part.EXPERTS: 2000}
    assert stored_tally(tally, "fp8", 2) == {Part.HEAD: 200, Part.LINEAR: 100, Part.EXPERTS: 1000}
    assert stored_tally(tally, "mxfp4", 2) == {Part.HEAD: 200, Part.LINEAR: 200, Part.EXPERTS: 532}
    assert stored_tally(tally, "other", 2) is None


def weights(**changes: Any) -> Weights:
    parts = {Part.EMBEDDING: 50, Part.HEAD: 50, Part.LINEAR: 400, Part.EXPERTS: 800, Part.KEPT: 10, Part.IDLE: 30}
    stored = {part: 2 * count for part, count in parts.items()}
    return Weights(parameters=parts, stored=stored, exact=True, experts=8, experts_per_token=2, **changes)


def test_only_layers_and_experts_shrink() -> None:
    assert weights().resident_bytes() == 2 * 1340
    assert weights().resident_bytes(Fraction(8)) == 2 * 140 + 1200
    assert weights().resident_bytes(Fraction(9, 2)) == 2 * 140 + 675


def test_gpus_share_all_but_norms_gates_and_biases() -> None:
    assert weights().resident_bytes(tensor_parallel=2) == 1330 + 20


def test_a_step_reads_no_embedding_no_vision_and_the_experts_that_were_chosen() -> None:
    one = 2 * (50 + 400 + 10) + 1600 // 4
    assert weights().step_bytes() == one
    assert one < weights().step_bytes(sequences=4) < weights().step_bytes(sequences=64) <= 2 * 1260
    two = round(1600 * (1 - (6 / 8) ** 2))
    assert weights().step_bytes(sequences=2) == 2 * 460 + two
