"""Plans: what is chosen, what is advised, the arguments with their reasons, and refusals with their arithmetic."""

from dataclasses import replace
from typing import Any

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.sizing.card import GIB, Card, by_name, of_host
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.model import Model, describe
from lpxdoctor.sizing.options import wish
from lpxdoctor.sizing.plan import Plan, plan
from tests.sizing import configs
from tests.sizing.hosts import L4, evidence, process


def model(name: str, **changes: Any) -> Model:
    return describe(Fields({**getattr(configs, name), **changes}, name), (), name=name, served=f"/models/{name}")


def made(found: Model, card: Card | str, **wanted: Any) -> Plan:
    asked: dict[str, Any] = {
        "context": None,
        "concurrency": None,
        "precision": None,
        "kv_format": "auto",
        "tensor_parallel": 1,
        **wanted,
    }
    return plan(found, by_name(card) if isinstance(card, str) else card, wish(found, **asked))


def arguments(planned: Plan) -> dict[str, str]:
    return {argument.flag: argument.value for argument in planned.arguments}


def names(planned: Plan) -> list[str]:
    return [option.precision.name for option in planned.options]


QWEN = model("QWEN_25_7B")


def test_a_model_is_planned_as_it_is_stored() -> None:
    planned = made(QWEN, "NVIDIA L4")
    assert planned.fits
    assert (planned.chosen.precision.name, planned.chosen.stored) == ("bf16", True)
    assert names(planned) == ["bf16", "fp8", "int8", "int4"]
    assert arguments(planned) == {"--max-model-len": "8192", "--max-num-seqs": str(planned.chosen.max_concurrency)}
    assert all(argument.reason for argument in planned.arguments)


def test_all_requests_fit_when_the_engine_is_set_up_for_as_many_and_not_one_more() -> None:
    option = made(QWEN, "NVIDIA L4").chosen
    assert option.engine.sequences == option.max_concurrency
    assert option.pool.requests(option.budget.room, 8192) >= option.max_concurrency
    most = option.max_concurrency
    assert made(QWEN, "NVIDIA L4", concurrency=most, precision="bf16").fits
    assert not made(QWEN, "NVIDIA L4", concurrency=most + 1, precision="bf16").fits


def test_the_longest_context_at_a_concurrency_is_the_last_that_fits() -> None:
    longest = made(QWEN, "NVIDIA L4", concurrency=20, context=1024).chosen.longest
    assert made(QWEN, "NVIDIA L4", concurrency=20, context=longest, precision="bf16").fits
    assert not made(QWEN, "NVIDIA L4", concurrency=20, context=longest + 1, precision="bf16").fits


def test_the_engines_own_limit_of_sequences_stays_where_more_would_fit() -> None:
    planned = made(model("QWEN_25_05B"), "NVIDIA H200", context=512)
    assert planned.chosen.max_concurrency > 1024
    assert "--max-num-seqs" not in arguments(planned)


def test_more_sequences_than_tokens_a_step_need_more_of_these() -> None:
    planned = made(model("QWEN_25_05B"), "NVIDIA L4", context=128, concurrency=3000)
    assert arguments(planned)["--max-num-batched-tokens"] == "3000"
    assert "--max-num-batched-tokens" not in arguments(made(model("QWEN_25_05B"), "NVIDIA L4", concurrency=8))


def test_the_usual_context_is_no_longer_than_the_models() -> None:
    assert made(model("PHI_3_MINI"), "NVIDIA L4").wish.context == 4096
    assert made(QWEN, "NVIDIA L4").wish.context == 8192
    with pytest.raises(UsageError, match="knows 32768 positions, and --context 32769 is more"):
        made(QWEN, "NVIDIA L4", context=32769)


@pytest.mark.parametrize("gpu", ["NVIDIA A10", "NVIDIA A100-SXM4-80GB", "RTX 3090", "Tesla T4"])
def test_fp8_is_never_advised_where_the_gpu_does_not_compute_in_it(gpu: str) -> None:
    planned = made(QWEN, gpu)
    assert "fp8" not in names(planned)
    assert "fp8" not in dict(planned.kv_tokens)
    assert "fp8" not in " ".join((*planned.ways_out, *(argument.value for argument in planned.arguments)))
    with pytest.raises(UsageError, match=f"{by_name(gpu).name} computes in .*: weights in fp8 gain nothing there"):
        made(QWEN, gpu, precision="fp8")


def test_nvfp4_is_for_blackwell() -> None:
    assert "nvfp4" in names(made(QWEN, "RTX 5090"))
    assert "nvfp4" not in names(made(QWEN, "NVIDIA H200"))
    assert set(dict(made(QWEN, "RTX 5090").kv_tokens)) == {"fp8", "nvfp4"}


def test_fp8_is_made_on_loading_and_others_need_a_checkpoint() -> None:
    planned = made(QWEN, "NVIDIA L4", precision="fp8")
    assert arguments(planned)["--quantization"] == "fp8"
    assert {o.precision.name: bool(o.precision.checkpoint) for o in planned.options} == {
        "bf16": False,
        "fp8": False,
        "int8": True,
        "int4": True,
    }
    other = made(QWEN, "NVIDIA L4", precision="int4")
    assert "--quantization" not in arguments(other)
    assert "int4 is not made on loading: serve a checkpoint in AWQ or GPTQ" in other.notes


def test_what_fits_only_in_fp8_is_planned_in_fp8() -> None:
    planned = made(model("PHI_4"), "NVIDIA L4")
    assert not planned.options[0].fits
    assert (planned.chosen.precision.name, planned.fits) == ("fp8", True)
    assert any("bf16 does not hold what is wanted, fp8 does" in note for note in planned.notes)


def test_a_gpu_without_bf16_gets_half() -> None:
    planned = made(model("QWEN_25_05B"), "Tesla T4")
    assert planned.chosen.precision.name == "fp16"
    assert arguments(planned)["--dtype"] == "half"
    with pytest.raises(UsageError, match="T4 computes in fp16, int8, int4"):
        made(model("QWEN_25_05B"), "Tesla T4", precision="fp8")


def test_kv_in_fp8_doubles_the_tokens() -> None:
    planned = made(QWEN, "NVIDIA H200")
    double = dict(planned.kv_tokens)["fp8"]
    assert double == pytest.approx(2 * planned.chosen.tokens, rel=0.01)
    asked = made(QWEN, "NVIDIA H200", kv_format="fp8")
    assert arguments(asked)["--kv-cache-dtype"] == "fp8"
    assert asked.chosen.tokens == double
    assert asked.kv_tokens == ()


def test_a_kv_format_that_cannot_hold_the_model_is_not_offered_and_not_taken() -> None:
    latent = model("DEEPSEEK_V2_LITE")
    assert dict(made(latent, "NVIDIA B200").kv_tokens).keys() == {"fp8"}
    with pytest.raises(UsageError, match="nvfp4 does not hold latent attention"):
        made(latent, "NVIDIA B200", kv_format="nvfp4")


def test_a_quantized_checkpoint_is_served_as_it_is() -> None:
    stored = model("LLAMA_31_8B", quantization_config={"quant_method": "awq", "bits": 4})
    planned = made(stored, "NVIDIA A10")
    assert names(planned) == ["int4"]
    assert planned.chosen.budget.weights < 6 * GIB
    assert "--quantization" not in arguments(planned)
    with pytest.raises(UsageError, match="is stored as int4, and is served as it is"):
        made(stored, "NVIDIA A10", precision="fp8")


def test_a_checkpoint_in_a_format_that_the_gpu_does_not_compute_in_is_served_with_a_note() -> None:
    stored = model("LLAMA_31_8B", quantization_config={"quant_method": "fp8"})
    planned = made(stored, "NVIDIA A10")
    assert planned.fits
    assert not planned.chosen.native
    assert any("does not compute in fp8" in note for note in planned.notes)
    assert not any("does not compute in" in note for note in made(stored, "NVIDIA L4").notes)


def test_gpt_oss_is_planned_in_mxfp4() -> None:
    planned = made(model("GPT_OSS_20B"), "RTX 5090")
    assert names(planned) == ["mxfp4"]
    assert planned.chosen.budget.weights / GIB == pytest.approx(12.8, abs=0.1)  # the files have 13.76 GB


def test_a_checkpoint_that_asks_for_kv_in_fp8_gets_it_without_an_argument() -> None:
    stored = model(
        "LLAMA_31_8B",
        quantization_config={"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    )
    planned = made(stored, "NVIDIA H200")
    assert planned.chosen.pool.token_bytes == 65_536
    assert "--kv-cache-dtype" not in arguments(planned)


def test_memory_that_others_hold_lowers_the_share() -> None:
    busy = {
        **L4,
        "memory_mib": {"total": 23034, "free": 12563, "used": 10471},
        "processes": [process(7, "python", 10000)],
    }
    planned = made(model("QWEN_25_05B"), of_host(Gpus.parse(evidence(busy)), 1))
    share = float(arguments(planned)["--gpu-memory-utilization"])
    assert share == int(100 * (12563 - 512) / 22563) / 100
    reason = next(a.reason for a in planned.arguments if a.flag == "--gpu-memory-utilization")
    assert "others hold 9.8 GiB" in reason


def test_a_full_gpu_is_refused() -> None:
    full = {
        **L4,
        "memory_mib": {"total": 23034, "free": 263, "used": 22771},
        "processes": [process(7, "python", 22300)],
    }
    planned = made(model("QWEN_25_05B"), of_host(Gpus.parse(evidence(full)), 1))
    assert not planned.fits
    assert "0.00 x 22.0 GiB = 0 MiB" in planned.refusal
    first = planned.ways_out[0]
    assert first.startswith("it fits the empty card, ")
    assert 'end python (pid 7, 22300 MiB), or plan as if it were: --gpu "NVIDIA L4"' in first
    assert "this very model" in first
    large = made(model("LLAMA_31_70B"), of_host(Gpus.parse(evidence(full)), 1))
    assert not any("empty card" in way for way in large.ways_out)


def test_70_billion_on_8_gb_is_refused_with_arithmetic() -> None:
    planned = made(model("LLAMA_31_70B"), "RTX 4060 Ti 8GB")
    assert not planned.fits
    assert planned.arguments == ()
    assert "weights 131.4 GiB" in planned.refusal
    assert "0.92 x 7.6 GiB = 7.0 GiB" in planned.refusal
    assert planned.ways_out == ()


def test_a_refusal_names_what_would_fit() -> None:
    planned = made(QWEN, "RTX 3060")
    assert not planned.fits
    assert planned.ways_out[:2] == (
        "weights in int8: --precision int8 (needs a checkpoint in W8A8)",
        "weights in int4: --precision int4 (needs a checkpoint in AWQ or GPTQ)",
    )
    assert planned.ways_out[-1] == "more GPUs: --tensor-parallel 2 (2 such GPUs)"
    assert made(QWEN, "RTX 3060", tensor_parallel=2).fits


def test_too_many_requests_are_refused_with_what_would_fit() -> None:
    planned = made(QWEN, "NVIDIA L4", concurrency=64)
    assert "64 requests of 8,192 tokens may need 28.0 GiB" in planned.refusal
    context, requests = planned.ways_out[:2]
    assert context == f"a shorter context: --context {planned.chosen.longest}"
    assert requests == f"fewer requests at once: --concurrency {planned.chosen.max_concurrency}"
    assert made(QWEN, "NVIDIA L4", concurrency=64, context=planned.chosen.longest).fits


def test_a_context_that_does_not_fit_once_is_refused() -> None:
    planned = made(model("LLAMA_31_8B"), "NVIDIA L4", context=131072)
    assert "one request of 131,072 tokens may need 16.0 GiB" in planned.refusal
    assert planned.ways_out[0] == f"a shorter context: --context {planned.chosen.longest}"


def test_a_gpu_that_no_vllm_ever_ran_on_is_refused() -> None:
    planned = made(model("QWEN_25_05B"), "Tesla P100-PCIE-16GB")
    assert "no kernels for compute capability 6.0" in planned.refusal


def test_gpus_share_a_model_in_equal_parts() -> None:
    planned = made(model("LLAMA_31_70B"), "NVIDIA H200", tensor_parallel=2)
    assert arguments(planned)["--tensor-parallel-size"] == "2"
    assert planned.chosen.budget.weights / GIB == pytest.approx(131.4 / 2, abs=0.1)
    assert planned.chosen.pool.token_bytes == 327_680 // 2
    with pytest.raises(UsageError, match="28 heads and their KV heads cannot be shared in equal parts by 8 GPUs"):
        made(QWEN, "NVIDIA H200", tensor_parallel=8)
    with pytest.raises(UsageError, match="cannot be shared in equal parts by 4 GPUs"):  # 40 heads, 10 KV heads
        made(model("PHI_4"), "NVIDIA H200", tensor_parallel=4)
    assert made(model("PHI_4"), "NVIDIA H200", tensor_parallel=20).fits


def test_a_gpu_that_the_tables_do_not_know_is_planned_with_notes() -> None:
    unknown = replace(by_name("NVIDIA L4"), name="NVIDIA X9", capability="19.0", native=(), bytes_per_s=None)
    planned = made(QWEN, unknown)
    assert planned.fits
    assert any("19.0 is not in the table" in note for note in planned.notes)
    assert any("no ceiling" in note for note in planned.notes)
