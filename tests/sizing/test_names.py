"""Names of tensors, as checkpoints of many families write them: what each is for."""

import pytest

from lpxdoctor.sizing.names import part_of, sort
from lpxdoctor.sizing.safetensors import Tensor
from lpxdoctor.sizing.weights import Part


@pytest.mark.parametrize(
    ("name", "dimensions", "part"),
    [
        ("model.embed_tokens.weight", 2, Part.EMBEDDING),
        ("language_model.model.embed_tokens.weight", 2, Part.EMBEDDING),
        ("backbone.embeddings.weight", 2, Part.EMBEDDING),
        ("transformer.wte.weight", 2, Part.EMBEDDING),
        ("lm_head.weight", 2, Part.HEAD),
        ("lm_head.bias", 1, Part.KEPT),
        ("model.layers.3.self_attn.q_proj.weight", 2, Part.LINEAR),
        ("model.layers.3.self_attn.q_proj.bias", 1, Part.KEPT),
        ("model.layers.3.self_attn.q_norm.weight", 1, Part.KEPT),
        ("model.layers.3.self_attn.sinks", 1, Part.KEPT),
        ("model.layers.3.input_layernorm.weight", 1, Part.KEPT),
        ("model.norm.weight", 1, Part.KEPT),
        ("model.layers.3.mlp.gate_proj.weight", 2, Part.LINEAR),
        ("model.layers.3.mlp.gate_up_proj.weight", 2, Part.LINEAR),
        ("model.layers.3.mlp.gate.weight", 2, Part.KEPT),
        ("model.layers.3.mlp.gate.e_score_correction_bias", 1, Part.KEPT),
        ("model.layers.3.block_sparse_moe.gate.weight", 2, Part.KEPT),
        ("model.layers.3.mlp.shared_expert_gate.weight", 2, Part.KEPT),
        ("model.layers.3.mlp.router.weight", 2, Part.KEPT),
        ("model.layers.3.block_sparse_moe.experts.7.w1.weight", 2, Part.EXPERTS),
        ("model.layers.3.mlp.experts.7.down_proj.weight_scale_inv", 2, Part.EXPERTS),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", 4, Part.EXPERTS),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", 2, Part.LINEAR),
        ("model.layers.3.mlp.shared_expert.up_proj.weight", 2, Part.LINEAR),
        ("model.layers.3.self_attn.q_proj.qweight", 2, Part.LINEAR),
        ("model.layers.3.self_attn.q_proj.scales", 2, Part.LINEAR),
        ("model.layers.3.self_attn.q_proj.g_idx", 1, Part.LINEAR),
        ("model.layers.3.self_attn.q_proj.weight_scale", 1, Part.LINEAR),
        ("model.layers.3.self_attn.kv_a_layernorm.weight", 1, Part.KEPT),
        ("model.layers.3.linear_attn.conv1d.weight", 3, Part.KEPT),
        ("model.layers.3.linear_attn.A_log", 1, Part.KEPT),
        ("model.layers.3.conv.conv.weight", 3, Part.KEPT),
        ("backbone.layers.3.mixer.D", 1, Part.KEPT),
        ("visual.blocks.30.attn.qkv.weight", 2, Part.IDLE),
        ("vision_tower.vision_model.encoder.layers.26.self_attn.k_proj.weight", 2, Part.IDLE),
        ("multi_modal_projector.linear_1.weight", 2, Part.IDLE),
        ("model.layers.3.self_attn.rotary_emb.inv_freq", 1, None),
        ("model.layers.4.self_attn.q_proj.weight", 2, None),  # a head for speculative decoding, beyond the last layer
        ("mtp.layers.0.mlp.gate_proj.weight", 2, None),
    ],
)
def test_a_tensor_is_for(name: str, dimensions: int, part: Part | None) -> None:
    assert part_of(Tensor(name, "BF16", 1, dimensions, 2), layers=4) is part


def test_files_of_32_bit_are_loaded_as_16_bit_unless_quantized() -> None:
    tensors = [Tensor("model.layers.0.mlp.up_proj.weight", "F32", 10, 2, 40)]
    assert sort(tensors, 1, tied=False, half_bytes=2, quantized=False).bytes[Part.LINEAR] == 20
    assert sort(tensors, 1, tied=False, half_bytes=2, quantized=True).bytes[Part.LINEAR] == 40


def test_a_tied_head_is_the_embedding_and_its_copy_is_not_loaded() -> None:
    tensors = [Tensor("model.embed_tokens.weight", "BF16", 10, 2, 20), Tensor("lm_head.weight", "BF16", 10, 2, 20)]
    tied = sort(tensors, 1, tied=True, half_bytes=2, quantized=False)
    assert dict(tied.bytes) == {Part.HEAD: 20}
    apart = sort(tensors, 1, tied=False, half_bytes=2, quantized=False)
    assert dict(apart.parameters) == {Part.EMBEDDING: 10, Part.HEAD: 10}
