"""make_gguf.py FILE: write a tiny Llama with random weights as GGUF. Needs the packages gguf and numpy.

Its vocabulary is the bytes and some words. Only words come out, so that every token has a text and no answer ends
early; words of a prompt are one token each.
"""

import sys

import gguf  # type: ignore[import-not-found]
import numpy as np  # type: ignore[import-not-found]

WIDTH, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 64, 4, 2, 128, 1024
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "hand")


def main(path: str) -> None:
    """Write the file."""
    chance = np.random.default_rng(1)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(f"▁{word}" for word in WORDS)]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    kinds += [gguf.TokenType.NORMAL] * len(WORDS)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (0.1 * chance.standard_normal(shape)).astype(np.float32))

    add("token_embd.weight", len(tokens), WIDTH)
    output = np.zeros((len(tokens), WIDTH), dtype=np.float32)  # of bytes and control tokens, which score 0
    output[-len(WORDS) :] = chance.standard_normal((len(WORDS), WIDTH))
    writer.add_tensor("output.weight", output)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}.weight", FEED_FORWARD, WIDTH)
        add(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
