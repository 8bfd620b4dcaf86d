"""A rung's ceiling is the plan's arithmetic over NVML's bandwidth; where it cannot be known the reason stands there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor.decode.ceiling import Served, ceilings, option
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.engine import Model as Listed
from lpxdoctor.decode.gpu import Card
from lpxdoctor.decode.profile import Ceiling, CeilingBasis, Rung
from lpxdoctor.decode.served import model_of
from lpxdoctor.decode.target import Target
from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.ceiling import step
from lpxdoctor.sizing.pool import pool
from tests.decode.simulated import BUSY, H200, QWEN, Server, climbed

H200_BYTES_PER_S = 3201 * 10**6 * 2 * 6016 // 8
SILENT = Card(capability=None, memory_clock_mhz=None, bus_width_bits=0, cores=None)


def rung(concurrency: int, **changes: Any) -> Rung:
    """Return a rung of 128 tokens in and 256 out at 10,000 tokens/s."""
    (made,) = climbed(Server(), (1,), 1, ceiling=False)
    values = {"prompt_tokens": 128.0, "output_tokens": 256.0, "output_tokens_per_s": 10_000.0, **changes}
    return msgspec.structs.replace(made, concurrency=concurrency, **values)


def of(
    one: Rung, *arguments: str, model: Any = QWEN, cards: tuple[Card, ...] = (H200,), cache: str = "auto"
) -> tuple[Ceiling, CeilingBasis]:
    served = Served(model=model, where="/model", arguments=arguments, cache_dtype=cache)
    found = ceilings((one,), served, ("NVIDIA H200",) * len(cards), cards)
    assert not isinstance(found, str), found
    ceiling = found[0][0].ceiling
    assert ceiling is not None
    return ceiling, found[1]


def test_the_ceiling_is_bytes_per_step_over_bandwidth() -> None:
    ceiling, basis = of(rung(32))
    expected = step(QWEN, pool(QWEN.layers, "auto", 2), sequences=32, context=256)
    assert basis.bytes_per_s == H200_BYTES_PER_S == 4_814_304_000_000
    assert basis.bandwidth_from == "3201 MHz x 2 x 6016 bit / 8, by NVML"
    assert ceiling.bytes_per_step == expected.bytes
    assert ceiling.tokens_per_s == pytest.approx(32 * H200_BYTES_PER_S / expected.bytes)
    assert ceiling.share == pytest.approx(10_000 / ceiling.tokens_per_s)
    # By hand: 7.07e9 parameters without the embedding, 57,344 bytes of KV cache a token, 257 of them a sequence.
    assert ceiling.weights_ms == pytest.approx(7.07e9 * 2 / 4.8143e9, rel=0.01)
    assert ceiling.kv_cache_ms == pytest.approx(32 * 257 * 57344 / 4.8143e9, rel=0.001)
    assert ceiling.step_ms == pytest.approx(3.2)
    assert ceiling.rest_ms == pytest.approx(3.2 - ceiling.weights_ms - ceiling.kv_cache_ms)


def test_arithmetic_counts_the_prompts_share_and_is_at_the_highest_clock_seen() -> None:
    ceiling, basis = of(rung(256))
    flops = 16896 * 32 * 1.98e9
    assert basis.flops == pytest.approx(flops)  # 1,070 TFLOP/s; the data sheet's 989 are at 1.83 GHz
    head = 152064 * 3584
    layers = 7.07e9 - head
    operations = 2 * 256 * (head + layers * 1.5)
    assert ceiling.compute_ms == pytest.approx(1000 * operations / flops, rel=0.01)


def test_gpus_that_share_a_model_read_their_parts() -> None:
    one, basis = of(rung(32))
    both = msgspec.structs.replace(rung(32), gpus=(BUSY, msgspec.structs.replace(BUSY, index=1)))
    two, shared = of(both, "--tensor-parallel-size", "2", cards=(H200, H200))
    assert (basis.tensor_parallel, shared.tensor_parallel) == (1, 2)
    assert two.bytes_per_step == pytest.approx(one.bytes_per_step / 2, rel=0.001)
    assert two.compute_ms == pytest.approx((one.compute_ms or 0) / 2)
    copies, basis = of(both, "--data-parallel-size=2", cards=(H200, H200))
    assert basis.replicas == 2
    assert copies.weights_ms == pytest.approx(one.weights_ms)
    assert copies.kv_cache_ms == pytest.approx(one.kv_cache_ms / 2)


def test_the_slowest_gpu_counts() -> None:
    slower = msgspec.structs.replace(H200, memory_clock_mhz=1593)
    both = msgspec.structs.replace(rung(8), gpus=(BUSY, msgspec.structs.replace(BUSY, index=1)))
    _, basis = of(both, "-tp", "2", cards=(H200, slower))
    assert basis.bytes_per_s == 1593 * 10**6 * 2 * 6016 // 8


def test_what_the_engine_makes_of_the_weights_counts() -> None:
    half, _ = of(rung(1))
    eight, basis = of(rung(1), "--quantization", "fp8")
    assert eight.weights_ms < 0.6 * half.weights_ms
    assert basis.flops == pytest.approx(2 * 16896 * 32 * 1.98e9)
    cache, _ = of(rung(1), cache="fp8")
    assert cache.kv_cache_ms == pytest.approx(half.kv_cache_ms / 2, rel=0.01)


def test_a_capped_engine_is_held_against_what_it_runs() -> None:
    (capped,) = climbed(Server(max_num_seqs=12), (48,), 1)
    (free,) = climbed(Server(), (12,), 1)
    assert capped.ceiling is not None
    assert free.ceiling is not None
    assert capped.ceiling.bytes_per_step == free.ceiling.bytes_per_step
    assert capped.ceiling.share == pytest.approx(free.ceiling.share or 0, rel=0.1)


def test_a_gpu_that_does_not_tell_is_looked_up_and_said_so() -> None:
    _, basis = of(rung(1), cards=(SILENT,))
    assert basis.bandwidth_from == "the data sheet of NVIDIA H200"
    assert basis.bytes_per_s == pytest.approx(4.8e12, rel=0.02)
    assert basis.flops is None


@pytest.mark.parametrize(
    ("arguments", "busy", "name", "reason"),
    [
        (("--speculative-config", "{}"), 1, "NVIDIA H200", "speculative decoding"),
        (("-pp", "2"), 1, "NVIDIA H200", "shared out by layers"),
        (("--quantization=awq",), 1, "NVIDIA H200", "--quantization awq"),
        (("--kv-cache-dtype", "fp3"), 1, "NVIDIA H200", "format fp3"),
        (("--tensor-parallel-size", "3"), 1, "NVIDIA H200", "not the model that is served"),
        (None, 2, "NVIDIA H200", "how they share the model"),
        ((), 1, "NVIDIA X1", "the table of GPUs lacks it"),
        ((), 0, "NVIDIA H200", "no GPU was seen busy"),
    ],
)
def test_what_cannot_be_known_has_its_reason(
    arguments: tuple[str, ...] | None, busy: int, name: str, reason: str
) -> None:
    gpus = tuple(msgspec.structs.replace(BUSY, index=index) for index in range(busy))
    served = Served(model=QWEN, where="/model", arguments=arguments, cache_dtype=None)
    found = ceilings((msgspec.structs.replace(rung(1), gpus=gpus),), served, (name,) * 2, (SILENT, SILENT))
    assert isinstance(found, str)
    assert reason in found


def test_without_the_engines_arguments_that_is_assumed_aloud() -> None:
    served = Served(model=QWEN, where="/model", arguments=None, cache_dtype=None)
    found = ceilings((rung(1),), served, ("NVIDIA H200",), (H200,))
    assert not isinstance(found, str)
    assert found[1].assumed == ("the weights as they are stored: the engine's arguments are not known",)


def test_a_rung_without_answers_has_no_ceiling() -> None:
    served = Served(model=QWEN, where="/model", arguments=(), cache_dtype=None)
    found = ceilings((rung(1), rung(2, output_tokens=None)), served, ("NVIDIA H200",), (H200,))
    assert not isinstance(found, str)
    assert [one.ceiling is None for one in found[0]] == [False, True]


def test_an_options_value_is_found_as_engines_take_it() -> None:
    arguments = ("--model", "/m", "--tensor_parallel_size=4", "-tp", "8", "--last")
    assert option(arguments, "--tensor-parallel-size", "-tp") == "4"
    assert option(arguments, "--last") is None
    assert option(arguments, "--quantization") is None


def target(*, root: str | None, is_local: bool = True) -> Target:
    return Target(
        endpoint=endpoint("http://127.0.0.1:9"),
        model=Listed(id="q", root=root),
        deployment=None,
        reached="over loopback",
        is_local=is_local,
    )


CONFIG = (
    '{"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, '
    '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512}'
)


def test_the_models_config_is_where_the_engine_says_or_where_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    for there, typed in ((target(root=str(tmp_path)), None), (target(root=None), str(tmp_path))):
        found = model_of(there, typed)
        assert not isinstance(found, str)
        assert found[0].architecture == "qwen2"
        assert found[1] == str(tmp_path)
    assert "--model-config" in str(model_of(target(root="/no/such"), None))
    assert "engine's host" in str(model_of(target(root=str(tmp_path), is_local=False), None))
    (tmp_path / "config.json").write_text("{}")
    assert "tells too little" in str(model_of(target(root=str(tmp_path)), None))
    with pytest.raises(UsageError):
        model_of(target(root=None), str(tmp_path))
