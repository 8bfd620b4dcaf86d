"""MODEL as it is typed: directories, config files, and what is none; any JSON object is a model or one error."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpxdoctor.errors import DoctorError, UsageError
from lpxdoctor.report.plan_json import to_json
from lpxdoctor.sizing.cache import FORMATS
from lpxdoctor.sizing.card import by_name
from lpxdoctor.sizing.families import known
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.model import describe
from lpxdoctor.sizing.options import wish
from lpxdoctor.sizing.plan import plan
from lpxdoctor.sizing.source import load
from lpxdoctor.sizing.weights import Part
from tests.sizing import checkpoints, configs

SMALL: dict[str, Any] = {
    **configs.LLAMA_31_8B,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}


def test_files_and_config_count_the_same(tmp_path: Path) -> None:
    directory = checkpoints.directory(tmp_path / "small", SMALL, checkpoints.llama(SMALL))
    files, config = load(str(directory)), load(str(directory / "config.json"))
    assert (files.weights.exact, config.weights.exact) == (True, False)
    assert dict(files.weights.parameters) == {part: n for part, n in config.weights.parameters.items() if n}
    assert files.weights.resident_bytes() == config.weights.resident_bytes()
    assert (files.name, files.served, config.served) == ("small", str(directory), str(directory))
    assert any("counted from the config" in note for note in config.notes)


def test_shards_count_as_one_file(tmp_path: Path) -> None:
    tensors = checkpoints.llama(SMALL)
    half = len(tensors) // 2
    shards = [dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])]
    whole = load(str(checkpoints.directory(tmp_path / "whole", SMALL, tensors)))
    assert load(str(checkpoints.directory(tmp_path / "shards", SMALL, *shards))).weights == whole.weights


def test_files_of_32_bit_are_loaded_as_16(tmp_path: Path) -> None:
    wide = checkpoints.directory(tmp_path / "wide", SMALL, checkpoints.llama(SMALL, "F32"))
    narrow = checkpoints.directory(tmp_path / "narrow", SMALL, checkpoints.llama(SMALL))
    assert load(str(wide)).weights.resident_bytes() == load(str(narrow)).weights.resident_bytes()


def test_a_quantized_checkpoints_bytes_are_its_files(tmp_path: Path) -> None:
    tensors = {
        name: ("F8_E4M3", shape) if "proj" in name else (dtype, shape)
        for name, (dtype, shape) in checkpoints.llama(SMALL).items()
    }
    scales = {name + "_scale": ("F32", (1,)) for name in tensors if "proj" in name}
    config = {**SMALL, "quantization_config": {"quant_method": "fp8"}}
    model = load(str(checkpoints.directory(tmp_path, config, {**tensors, **scales})))
    linear = 3 * (64 * 64 * 2 + 2 * 32 * 64 + 3 * 64 * 160)
    assert model.weights.scheme == "fp8"
    assert model.weights.stored[Part.LINEAR] == linear + 3 * 7 * 4


def test_an_unknown_type_is_planned_from_files_with_a_note(tmp_path: Path) -> None:
    config = {**SMALL, "model_type": "brand_new"}
    directory = checkpoints.directory(tmp_path, config, checkpoints.llama(SMALL))
    model = load(str(directory))
    assert model.weights.exact
    assert any("brand_new is not known" in note for note in model.notes)
    with pytest.raises(UsageError, match=r"model_type brand_new is not known.*safetensors.*llama"):
        load(str(directory / "config.json"))


def test_a_model_that_sees_needs_its_files(tmp_path: Path) -> None:
    config = {"model_type": "llava", "text_config": SMALL, "vision_config": {"hidden_size": 32}}
    language = {f"language_model.{name}": tensor for name, tensor in checkpoints.llama(SMALL).items()}
    eyes = {"vision_tower.vision_model.encoder.layers.20.mlp.fc1.weight": ("BF16", (32, 32))}
    model = load(str(checkpoints.directory(tmp_path, config, {**language, **eyes})))
    assert model.weights.stored[Part.IDLE] == 2 * 32 * 32
    with pytest.raises(UsageError, match="also sees or hears"):
        load(str(tmp_path / "config.json"))


def test_a_quantization_that_is_not_known_needs_the_files(tmp_path: Path) -> None:
    config = {**SMALL, "quantization_config": {"quant_method": "squeeze"}}
    directory = checkpoints.directory(tmp_path, config, checkpoints.llama(SMALL))
    assert load(str(directory)).weights.scheme == "other"
    with pytest.raises(UsageError, match="its quantization is not known"):
        load(str(directory / "config.json"))


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    checkpoints.directory(tmp_path, SMALL, {"base_model.norm.lora_A": ("BF16", (8,))})
    with pytest.raises(UsageError, match="hold no layer of a language model"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/nowhere/at/all", "no such file or directory, and no hub id"),
        ("nowhere", "no such file or directory"),
        ("", "no config.json|no such file"),
        ("a\0b", "cannot be read|no such file"),
        ("x" * 5000, "cannot be read|no such file"),
        ("/dev/null", "no such file or directory"),
    ],
)
def test_what_is_no_model(typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        load(typed)


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '"x"', "[" * 100_000, "\ud800", "NaN", "9" * 5000])
def test_a_config_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UsageError, match=r"config\.json"):
        load(str(tmp_path))


def test_a_directory_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config\.json: it is not the directory of a model"):
        load(str(tmp_path))


# --- any JSON object ------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-2, 70),
    st.sampled_from([0, 1, 2**31, 2**31 + 1, 10**40, -(10**40)]),
    st.floats(),
    st.integers(),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
# Every field that the program reads, found in the configs of these tests, and some that only few families have.
FIELDS = sorted(
    {key for name, config in vars(configs).items() if name.isupper() for key in config}
    | {
        *("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "hybrid_override_pattern", "n_groups"),
        *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_expand", "shared_intermediate_size"),
        *("conv_L_cache", "block_ffn_dim_multiplier", "block_multiple_of", "full_attn_idxs", "attention_chunk_size"),
        *("no_rope_layers", "moe_layers", "interleave_moe_layer_step", "intermediate_size_mlp", "text_config", "dtype"),
        *("moe_num_experts", "moe_k", "moe_layer_start_index", "moe_layer_end_index", "layers_block_type", "use_bias"),
        *("index_topk", "index_n_heads", "index_head_dim", "vision_config", "compression_config", "moe_latent_size"),
        *("rope_scaling", "rope_parameters", "max_seq_len", "model_max_length", "quantization_config"),
    }
)
TYPES = (*known(), "brand_new", "")


# What the two objects inside a config are made of.
PARTS = st.dictionaries(
    st.sampled_from(
        [
            "quant_method",
            "bits",
            "w_bit",
            "config_groups",
            "weights",
            "num_bits",
            "type",
            "quantization",
            "quant_algo",
            "kv_cache_quant_algo",
            "load_in_8bit",
            "rope_type",
            "factor",
            "full_attention",
            "sliding_attention",
        ]
    ),
    st.one_of(
        VALUES,
        st.sampled_from(
            ["compressed-tensors", "modelopt", "awq", "gptq", "bitsandbytes", "fp8", "NVFP4", "FP8", "yarn"]
        ),
        st.dictionaries(st.sampled_from(["g", "weights", "quant_algo", "factor", "rope_type"]), VALUES, max_size=3),
    ),
    max_size=6,
)


def planned_or_refused(config: dict[str, Any], kv_format: str = "auto", parallel: int = 1) -> None:
    """Plan a config; the only exception is an error for people."""
    with suppress(DoctorError):
        model = describe(Fields(config, "config.json"), (), name="any", served="any")
        asked = wish(
            model, context=None, concurrency=None, precision=None, kv_format=kv_format, tensor_parallel=parallel
        )
        assert json.loads(to_json(plan(model, by_name("NVIDIA L4"), asked)))["fits"] in (True, False)


@settings(max_examples=150)
@given(st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=8)), VALUES, max_size=12))
def test_any_object_is_a_model_or_one_error(config: dict[str, Any]) -> None:
    planned_or_refused(config)


@settings(max_examples=200)
@given(
    st.sampled_from(TYPES),
    st.sampled_from([name for name in vars(configs) if name.isupper()]),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3),
    st.sets(st.sampled_from(FIELDS), max_size=3),
)
def test_a_real_config_with_some_fields_absurd_or_missing_is_a_model_or_one_error(
    kind: str, name: str, absurd: dict[str, Any], missing: set[str]
) -> None:
    config = {key: value for key, value in getattr(configs, name).items() if key not in missing}
    config["num_hidden_layers"] = min(config.get("num_hidden_layers", 4), 4)
    config.pop("layer_types", None)
    planned_or_refused({**config, "model_type": kind, **absurd})


@settings(max_examples=150)
@given(
    st.sampled_from([name for name in vars(configs) if name.isupper()]),
    st.sampled_from(["quantization_config", "compression_config", "rope_scaling", "rope_parameters", "text_config"]),
    PARTS,
    st.sampled_from(FORMATS),
    st.sampled_from([1, 2, 3, 8, 64]),
)
def test_any_object_inside_a_real_config_in_any_kv_format_on_any_number_of_gpus(
    name: str, part: str, inner: dict[str, Any], kv_format: str, parallel: int
) -> None:
    config = {**getattr(configs, name), "num_hidden_layers": 4, part: inner}
    config.pop("layer_types", None)
    planned_or_refused(config, kv_format, parallel)


@pytest.mark.parametrize("name", ["m-Q4_K_M.gguf", "model.safetensors", "pytorch_model.bin"])
def test_files_of_weights_are_not_a_config(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"GGUF\x03\x00\x00\x00" * 100)
    said = "llama.cpp serves.*its hub id" if name.endswith("gguf") else "holds weights and no config"
    for typed in (tmp_path / name, tmp_path):  # the directory has no config.json either
        with pytest.raises(UsageError, match=said):
            load(str(typed))


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, 131072),
        ({"max_position_embeddings": None}, None),
        ({"rope_scaling": None}, 131072),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 524288),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, 262144),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),  # Llama 3.1
        ({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}}, 131072),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}, "x": 1}}, 1048576),
        ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 131072),
        ({"model_max_length": 8192}, 8192),
    ],
)
def test_the_longest_context_is_the_engines(fields: dict[str, Any], longest: int | None) -> None:
    model = describe(Fields({**configs.LLAMA_31_8B, **fields}, "x"), (), name="any", served="any")
    assert model.longest == longest


@pytest.mark.parametrize("factor", [0, -1, 0.5, 1e12, float("nan"), float("inf")])
def test_an_absurd_rotary_factor_is_an_error(factor: float) -> None:
    config = {**configs.LLAMA_31_8B, "rope_scaling": {"rope_type": "linear", "factor": factor}}
    with pytest.raises(UsageError, match="rope_scaling has the factor"):
        describe(Fields(config, "x"), (), name="any", served="any")
