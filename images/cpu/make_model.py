#!/usr/bin/env python3
"""make_model.py DIR: write the shape and tokenizer of a tiny Qwen2 that vLLM serves with --load-format dummy.

There are no weights: the engine draws random ones, so what comes out means nothing and how fast it comes is
real. The tokenizer is plain JSON, made here without any library: every byte, and the commonest pairs of
letters. All 4096 ids have a text, so that every generated token can be streamed.
"""

import json
import sys
from pathlib import Path

VOCABULARY = 4096
CONTEXT = 2048
END_OF_TEXT = "<|endoftext|>"
SPACE = "Ġ"  # what a byte-level tokenizer writes for a space
LETTERS = "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789"  # commonest first


def byte_symbols() -> list[str]:
    """Return one printable symbol per byte: the mapping of GPT-2, shared by all byte-level BPE tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def tokenizer() -> dict[str, object]:
    """Return a tokenizer.json: one special token, the bytes, and merges of two letters until it is full."""
    pairs = [(rank + place, a, b) for rank, a in enumerate(SPACE + LETTERS) for place, b in enumerate(LETTERS)]
    merges = [[a, b] for _, a, b in sorted(pairs)][: VOCABULARY - 256 - 1]
    tokens = [END_OF_TEXT, *byte_symbols(), *("".join(pair) for pair in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {
        "id": 0,
        "content": END_OF_TEXT,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}
    return {
        "version": "1.0",
        "added_tokens": [special],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model,
    }


def tokenizer_config() -> dict[str, object]:
    """Return a tokenizer_config.json with the least chat template that serves /v1/chat/completions."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": CONTEXT,
        "chat_template": "{% for message in messages %}{{ message.content }}\n{% endfor %}",
    }


def config() -> dict[str, object]:
    """Return a config.json of about 4 million parameters: a token takes milliseconds on one CPU core."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "max_window_layers": 4,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def main() -> int:
    """Write the three files, each only when it differs, so that a second run changes nothing."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: make_model.py DIR", file=sys.stderr)
        return 64
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        "config.json": config(),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
    }
    for name, content in contents.items():
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        file = directory / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
