"""Checkpoints for tests: a config and shapes of tensors in, a model directory with real safetensors files out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4}
Shapes = Mapping[str, tuple[str, Sequence[int]]]


def header(shapes: Shapes) -> dict[str, Any]:
    """Return the header of a file with these tensors, one behind the other."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in shapes.items():
        start, size = end, SIZES[dtype]
        for length in shape:
            size *= length
        end = start + size
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    return entries


def write(path: Path, shapes: Shapes) -> Path:
    """Write a safetensors file as the format says; the weights are a hole that takes no disk."""
    entries = header(shapes)
    text = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        last = max((entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"), default=0)
        file.truncate(8 + len(text) + last)
    return path


def directory(path: Path, config: Mapping[str, Any], *files: Shapes) -> Path:
    """Write a model directory; of several files with an index, as transformers shards them."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if len(files) == 1:
        write(path / "model.safetensors", files[0])
    elif files:
        names = [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
        for name, shapes in zip(names, files, strict=True):
            write(path / name, shapes)
        index = {tensor: name for name, shapes in zip(names, files, strict=True) for tensor in shapes}
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return path


def llama(config: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, Sequence[int]]]:
    """Return the tensors that transformers saves of a Llama without biases."""
    hidden, inner, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    size = config.get("head_dim", hidden // config["num_attention_heads"])
    query, key = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    shapes: dict[str, Sequence[int]] = {"model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "self_attn.q_proj": (query, hidden),
                "self_attn.k_proj": (key, hidden),
                "self_attn.v_proj": (key, hidden),
                "self_attn.o_proj": (hidden, query),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
            }.items()
        }
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (words, hidden)
    return {name: (dtype, shape) for name, shape in shapes.items()}
