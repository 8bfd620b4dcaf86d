"""The engine's own arithmetic: against what a real vLLM had left for its KV cache, and what moves it."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lpxdoctor.sizing.budget import Budget, Engine, budget, defaults, fits_natively
from lpxdoctor.sizing.card import GIB, MIB, Card, by_name
from lpxdoctor.sizing.ceiling import step
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.model import Model, describe
from lpxdoctor.sizing.pool import pool
from lpxdoctor.sizing.precision import named
from tests.sizing import configs

# Measured 2026-11-29: vLLM 0.25.1 on one H200, --max-model-len 8192 and else its defaults, the shape of Qwen2.5-7B.
MEASURED = {("bf16", "auto"): 2_063_088, ("fp8", "auto"): 2_176_544, ("fp8", "fp8"): 4_353_104}


def model(name: str) -> Model:
    return describe(Fields(getattr(configs, name), name), (), name=name, served=name)


ROOT = Path(__file__).resolve().parents[2]
QWEN, H200 = model("QWEN_25_7B"), by_name("NVIDIA H200")


@pytest.mark.parametrize(("precision", "form"), MEASURED)
def test_the_kv_capacity_of_a_real_engine_is_predicted_within_2_percent(precision: str, form: str) -> None:
    engine = defaults(H200)
    room = budget(QWEN, H200, engine, named(precision).bits, 1).room
    tokens = pool(QWEN.layers, form, 2, in_flight=engine.in_flight).tokens(room, 8192)
    assert tokens == pytest.approx(MEASURED[precision, form], rel=0.02)
    assert f"| {MEASURED[precision, form]:,} | {tokens:,} |" in (ROOT / "docs/plan.md").read_text(encoding="utf-8")


def test_the_defaults_are_vllms() -> None:
    assert defaults(H200) == Engine(batched_tokens=8192, sequences=1024, utilization=0.92)
    assert defaults(by_name("NVIDIA L4")) == Engine(batched_tokens=2048, sequences=256, utilization=0.92)
    assert defaults(by_name("NVIDIA A100-SXM4-80GB")).sequences == 256
    assert defaults(by_name("NVIDIA B200")) == Engine(batched_tokens=16384, sequences=1024, utilization=0.92)


def seen(card: Card, free: float) -> Card:
    return replace(card, free_bytes=int(card.total_bytes * free))


def test_what_others_hold_lowers_the_share() -> None:
    assert defaults(seen(H200, 1.0)).utilization == 0.92
    assert defaults(seen(H200, 0.5)).utilization == 0.49  # less the process's own context
    assert defaults(seen(H200, 0.0)).utilization == 0.0


def test_the_parts_add_up() -> None:
    parts = budget(QWEN, H200, defaults(H200), None, 1)
    assert parts.weights == 7_615_616_512 * 2
    assert parts.requested == pytest.approx(0.92 * H200.total_bytes)
    assert parts.room == parts.requested - parts.weights - parts.activations - parts.graphs - parts.runtime


def part(name: str, *, sequences: int, tokens: int = 8192, parallel: int = 1) -> int:
    engine = Engine(batched_tokens=tokens, sequences=sequences)
    found: Budget = budget(QWEN, H200, engine, None, parallel)
    value: int = getattr(found, name)
    return value


def test_sampling_from_many_sequences_takes_memory() -> None:
    logits = 1024 * 152064 * 14
    assert part("activations", sequences=1024) == logits + 2 * 2 * 8192 * 3584
    assert part("activations", sequences=1) == 2 * 8192 * 3 * (3584 + 18944)
    assert part("activations", sequences=1, tokens=2048) == 2 * 2048 * 3 * (3584 + 18944)
    assert part("activations", sequences=1, parallel=2) == 2 * 8192 * 3 * (3584 + 18944 // 2)


def test_graphs_are_captured_for_each_batch_size() -> None:
    # 51 sizes up to 512 in pieces, and 35 of them up to 256 in full: as vLLM logs for 256 sequences
    assert part("graphs", sequences=256) == GIB // 4 + int((51 + 35) * 28 * 0.15 * MIB)
    assert part("graphs", sequences=128) == GIB // 4 + int((35 + 19) * 28 * 0.15 * MIB)
    assert part("graphs", sequences=1) == GIB // 4 + int((2 + 1) * 28 * 0.15 * MIB)


def test_more_gpus_need_nccl() -> None:
    assert part("runtime", sequences=1, parallel=2) > part("runtime", sequences=1)


@pytest.mark.parametrize(
    ("gpu", "native"),
    [
        ("NVIDIA A10", {"bf16", "fp16", "int8", "int4"}),  # Ampere has no FP8
        ("NVIDIA A100-SXM4-80GB", {"bf16", "fp16", "int8", "int4"}),
        ("NVIDIA L4", {"bf16", "fp16", "fp8", "int8", "int4"}),
        ("NVIDIA H200", {"bf16", "fp16", "fp8", "int8", "int4"}),  # int4 weights alone
        ("RTX 5090", {"bf16", "fp16", "fp8", "int8", "nvfp4", "int4"}),
        ("Tesla T4", {"fp16", "int8", "int4"}),  # no bf16
    ],
)
def test_a_gpu_computes_in(gpu: str, native: set[str]) -> None:
    names = ("bf16", "fp16", "fp8", "int8", "nvfp4", "int4")
    assert {name for name in names if fits_natively(by_name(gpu), named(name))} == native


def test_the_ceiling_of_llama_is_that_of_the_formula() -> None:
    # Worked by hand for 4.814 TB/s: (8.03e9 - 0.525e9 of the embedding) x 2 bytes and 1088 tokens of 131072 bytes.
    llama = model("LLAMA_31_8B")
    kv = pool(llama.layers, "auto", 2)
    one = step(llama, kv, sequences=1, context=1088)
    assert one.bytes == 2 * (8_030_261_248 - 128256 * 4096) + (1088 + 1) * 131072
    assert one.tokens_per_s(4_814_300_000_000) == pytest.approx(318, abs=1)
    rates = {n: step(llama, kv, sequences=n, context=1088).tokens_per_s(4_814_300_000_000) for n in (8, 32, 256)}
    assert rates == {
        8: pytest.approx(2385, rel=0.002),
        32: pytest.approx(7871, rel=0.002),
        256: pytest.approx(23924, rel=0.002),
    }


def test_fewer_bits_raise_the_ceiling_and_the_embedding_is_not_read() -> None:
    kv = pool(QWEN.layers, "auto", 2)
    half = step(QWEN, kv, sequences=1, context=0)
    assert half.bytes == 2 * (7_615_616_512 - 152064 * 3584) + 57344
    fp8 = step(QWEN, kv, sequences=1, context=0, bits=Fraction(8))
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944)
    assert half.bytes - fp8.bytes == linear
