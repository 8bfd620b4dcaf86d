"""The plan against a real vLLM: the KV cache that the engine says it has is the one that was computed, to the token."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from lpxdoctor.sizing.pool import pool
from lpxdoctor.sizing.source import load
from tests.lab import vllm
from tests.lab.engine import ROOT, run

SPACE_BYTES = 1 << 30  # VLLM_CPU_KVCACHE_SPACE=1, as tests/lab/vllm.py sets it
# Windows of 128 tokens in five of six layers, and a head size that is not hidden size / heads.
WINDOWS = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 13,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
    "sliding_window": 128,
    "query_pre_attn_scalar": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
}


def cache_config(server: vllm.Server) -> dict[str, str]:
    """Return the labels of vllm:cache_config_info, which are the engine's cache settings as it resolved them."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as response:
        text = response.read().decode()
    labels = re.search(r"^vllm:cache_config_info\{(.*)\} 1\.0$", text, re.MULTILINE)
    assert labels, text[:2000]
    return dict(re.findall(r'(\w+)="([^"]*)"', labels[1]))


def assert_the_same_capacity(server: vllm.Server, directory: Path) -> None:
    said, model = cache_config(server), load(str(directory))
    # A step's tokens are at least as many as a request's here, so no window moves on before the request ends.
    ours = pool(
        model.layers,
        "auto",
        model.half_bytes,
        in_flight=vllm.MAX_MODEL_LEN,
        block_tokens=int(said["block_size"]),
        prefix_caching=said["enable_prefix_caching"] == "True",
    )
    assert ours.tokens(SPACE_BYTES, vllm.MAX_MODEL_LEN) == int(said["kv_cache_size_tokens"])
    assert SPACE_BYTES // ours.block_bytes == int(said["num_gpu_blocks"])


def test_the_kv_cache_of_an_engine_is_as_computed(vllm_server: vllm.Server, model_dir: Path) -> None:
    assert_the_same_capacity(vllm_server, model_dir)


def test_the_kv_cache_with_windows_is_as_computed(cpu_image: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("windows")
    directory.chmod(0o755)  # the engine in the container need not be root
    run("python3", ROOT / "images/cpu/make_model.py", directory)
    (directory / "config.json").write_text(json.dumps(WINDOWS))
    with vllm.started(cpu_image, directory) as server:
        assert_the_same_capacity(server, directory)
