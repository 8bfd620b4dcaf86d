"""Candidates follow from model, GPU, engine version and what was measured; what is not tried says why."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor.decode.profile import Profile, decode
from lpxdoctor.errors import UsageError
from lpxdoctor.tune.candidates import RULES, candidates, checked_steps
from lpxdoctor.tune.draft import unlike
from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.situation import Candidate, Situation
from tests.decode.servers import Server, measured
from tests.sizing.test_plan import QWEN, made, model

H200_LADDER = Path(__file__).parents[1] / "decode" / "h200-ladder.json"
H200, A10 = made(QWEN, "NVIDIA H200"), made(QWEN, "NVIDIA A10")


def profile(version: str | None = "0.25.1", lumps: float = 1.0, *at: int) -> Profile:
    found = measured(Server(concurrencies=at or (1, 32)), 1)
    rungs = tuple(msgspec.structs.replace(rung, tokens_per_chunk=lumps) for rung in found.rungs)
    engine = msgspec.structs.replace(found.engine, version=version)
    return msgspec.structs.replace(found, rungs=rungs, engine=engine, input_len=128)


def found(flags: Mapping[str, str] | None = None, **changes: Any) -> dict[str, list[Candidate]]:
    """Return the candidates by step."""
    given: dict[str, Any] = {"first": profile(), "plan": H200, **changes}
    answer: dict[str, list[Candidate]] = {}
    for one in candidates(Situation(flags=flags or {}, **given)):
        answer.setdefault(one.step, []).append(one)
    return answer


def added(step: list[Candidate]) -> list[tuple[str, ...]]:
    return [one.settings.added for one in step if not one.skipped]


def skipped(step: list[Candidate]) -> str:
    (one,) = step
    return one.skipped


def test_what_moves_most_bytes_is_first_and_every_one_has_a_reason() -> None:
    steps = found()
    assert next(iter(steps)) == "weights"
    fp8 = ("--quantization", "fp8")
    assert added(steps["weights"]) == [(*fp8, "--linear-backend", "torch"), fp8]
    assert "NVIDIA H200 computes in fp8: 1.86" in steps["weights"][0].reason
    assert added(steps["kv-cache"]) == [("--kv-cache-dtype", "fp8")]
    assert all(bool(one.reason) != bool(one.skipped) for step in steps.values() for one in step)
    assert set(steps) == set(RULES) - {"given"}


def test_nothing_is_tried_that_the_gpu_does_not_compute_or_the_checkpoint_is_not() -> None:
    ampere = found(plan=A10)
    assert "no better than bf16" in skipped(ampere["weights"])
    assert "no format below 16 bit" in skipped(ampere["kv-cache"])
    awq = {"quant_method": "awq", "bits": 4}
    stored = found(plan=made(model("QWEN_25_7B", quantization_config=awq), "NVIDIA H200"))
    assert "stored as int4" in skipped(stored["weights"])
    assert "--quantization awq" in skipped(found({"--quantization": "awq"})["weights"])


@pytest.mark.parametrize(
    ("gpu", "version", "tried"),
    [
        ("NVIDIA B200", "0.25.1", ["fp8", "nvfp4"]),
        ("RTX 5090", "0.30.0", ["fp8"]),
        ("RTX 5090", "0.32.0", ["fp8", "nvfp4"]),
    ],
)
def test_kv_in_nvfp4_is_tried_where_the_engine_has_kernels_for_the_gpu(
    gpu: str, version: str, tried: list[str]
) -> None:
    steps = found(first=profile(version), plan=made(QWEN, gpu))
    assert [words[1] for words in added(steps["kv-cache"])] == tried


def test_a_plan_that_does_not_fit_is_not_taken_for_a_gpu_that_computes_in_nothing() -> None:
    assert "does not fit" in skipped(found(plan=made(model("LLAMA_31_70B"), "NVIDIA L4"))["kv-cache"])


def test_the_other_library_of_fp8_is_tried_where_several_are_served_and_the_engine_lets_choose() -> None:
    fp8, library = ("--quantization", "fp8"), ("--linear-backend", "torch")
    assert added(found()["weights"]) == [(*fp8, *library), fp8]
    assert added(found(first=profile("0.20.0"))["weights"]) == [fp8]
    assert added(found(first=profile("0.25.1", 1.0, 1))["weights"]) == [fp8]
    assert added(found({"--linear-backend": "cutlass"})["weights"]) == [fp8]
    assert added(found(plan=A10)["weights"]) == []
    mixture = made(model("QWEN_3_30B_A3B"), "NVIDIA H200")
    assert added(found(plan=mixture)["weights"]) == [fp8]


def test_the_other_library_is_tried_where_the_model_is_in_fp8_already() -> None:
    stored = {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"weights": {"type": "float", "num_bits": 8}}},
    }
    quantized = made(model("QWEN_25_7B", quantization_config=stored), "NVIDIA H200")
    assert added(found(plan=quantized)["weights"]) == [("--linear-backend", "torch")]
    for value in ("fp8", "fp8_per_channel"):
        assert added(found({"--quantization": value})["weights"]) == [("--linear-backend", "torch")]
    assert "--quantization fp8_per_block" in skipped(found({"--quantization": "fp8_per_block"})["weights"])
    assert "--quantization fp8" in skipped(found({"--quantization": "fp8"}, first=profile("0.20.0"))["weights"])
    ampere = made(model("QWEN_25_7B", quantization_config=stored), "NVIDIA A10")
    assert "stored as fp8" in skipped(found(plan=ampere)["weights"])


def test_without_a_plan_what_needs_one_says_so() -> None:
    steps = found(plan="no GPU answers")
    assert skipped(steps["weights"]) == skipped(steps["kv-cache"]) == "no GPU answers"
    assert "no GPU answers" in skipped(steps["sequences"])


@pytest.mark.parametrize(
    ("step", "version", "said"),
    [
        ("scheduling", "0.25.1", "does so by itself, since 0.14.0"),
        ("scheduling", "0.9.2", "does not know it; 0.10.0 does"),
        ("scheduling", None, "version is not known"),
        ("performance-mode", "0.16.0", "does not know it; 0.17.0 does"),
        ("cuda-graphs", "0.10.2", "does not know it; 0.11.0 does"),
    ],
)
def test_what_a_version_does_not_know_or_does_by_itself_is_skipped(step: str, version: str | None, said: str) -> None:
    assert said in skipped(found(first=profile(version))[step])


def test_what_a_version_knows_is_tried() -> None:
    assert added(found(first=profile("0.12.0+cu129"))["scheduling"]) == [("--async-scheduling",)]
    assert added(found()["performance-mode"]) == [("--performance-mode", "interactivity")]
    many = found(first=profile("0.25.1", 1.0, 256))
    assert added(many["performance-mode"]) == [("--performance-mode", "throughput")]


def test_flags_that_slow_the_engine_down_are_taken_away() -> None:
    steps = found({"--enforce-eager": "", "--no-async-scheduling": ""})
    assert [one.settings.removed for one in steps["compilation"]] == [("--enforce-eager",)]
    assert [one.settings.removed for one in steps["scheduling"]] == [("--no-async-scheduling",)]


def test_a_front_end_that_lags_gets_help() -> None:
    assert "keeps up" in skipped(found()["front-end"])
    lagging = found(first=profile("0.25.1", 11.7))["front-end"]
    assert added(lagging) == [("--api-server-count", "4"), ("--stream-interval", "4")]
    assert "11.7 tokens at a time" in lagging[0].reason


def test_limits_of_a_step_are_raised_where_they_are_reached() -> None:
    steps = found({"--max-num-seqs": "16", "--max-num-batched-tokens": "2048"})
    assert added(steps["sequences"]) == [("--max-num-seqs", "32")]
    assert added(steps["tokens-a-step"]) == [("--max-num-batched-tokens", "4096"), ("--max-num-batched-tokens", "1024")]
    assert "fit one step of 8192" in skipped(found()["tokens-a-step"])
    assert "1024 may run at once" in skipped(found()["sequences"])


def test_the_prefix_cache_stays_unless_prompts_are_said_to_be_unique() -> None:
    assert "--unique-prompts" in skipped(found()["prefix-cache"])
    assert added(found(unique_prompts=True)["prefix-cache"]) == [("--no-enable-prefix-caching",)]


def tokenizer(directory: Path, **vocabulary: int) -> str:
    directory.mkdir()
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    return str(directory)


def test_a_draft_must_have_the_same_tokenizer(tmp_path: Path) -> None:
    one, same, other = (
        tokenizer(tmp_path / name, **vocabulary)
        for name, vocabulary in (("one", {"a": 0, "b": 1}), ("same", {"b": 1, "a": 0}), ("other", {"a": 1, "b": 0}))
    )
    assert unlike(one, same) == ""
    assert "another tokenizer" in unlike(one, other)
    assert "cannot be read" in unlike(one, str(tmp_path / "none"))
    assert "does not tell the model" in unlike(None, same)
    tried = found(model=one, speculate=("ngram", same, other))["speculation"]
    configs = [json.loads(words[1]) for words in added(tried)]
    assert [config.get("method", config.get("model")) for config in configs] == ["ngram", same]
    assert "another tokenizer" in tried[2].skipped
    assert "--speculate" in skipped(found()["speculation"])


def test_what_was_typed_comes_first_each_as_a_step_of_its_own() -> None:
    steps = found(given=(Settings(("--x",)), Settings(("--y", "1"))))
    assert list(steps)[:2] == ["given 1", "given 2"]


def test_steps_are_chosen_by_name() -> None:
    assert checked_steps(()) == tuple(RULES)
    assert checked_steps(("weights",)) == ("weights",)
    with pytest.raises(UsageError, match=r"no such step\. There are: given, weights"):
        checked_steps(("wieghts",))


def held_up(*, by: float) -> Profile:
    """Return a profile whose mean gap between chunks is longer than the usual one by a share of the mean."""
    found = profile()
    gaps = (msgspec.structs.replace(rung.itl_ms, p50=5.0, mean=5.0 / (1 - by)) for rung in found.rungs)
    rungs = (
        msgspec.structs.replace(rung, itl_ms=itl, engine=None) for rung, itl in zip(found.rungs, gaps, strict=True)
    )
    return msgspec.structs.replace(found, rungs=tuple(rungs))


def test_what_prompts_cost_is_read_from_the_first_measurement() -> None:
    """On an H200 at 32 at once they took 11 % of the engine's time: that is tried right after the weights."""
    ladder = decode(H200_LADDER.read_bytes(), "h200")
    steps = found(first=msgspec.structs.replace(ladder, rungs=(ladder.rungs[0], ladder.rungs[5])))
    assert list(steps)[:3] == ["weights", "compilation", "cuda-graphs"]
    assert "hold the others up for 11% of the time" in steps["cuda-graphs"][0].reason


def test_graphs_of_mixed_steps_are_tried_where_attention_can_be_captured_and_prompts_are_short() -> None:
    steps = found(first=held_up(by=0.2))
    assert added(steps["cuda-graphs"]) == [("--compilation-config", '{"cudagraph_mode": "FULL"}')]
    assert "160 tokens, and such steps hold the others up for 20% of the time" in steps["cuda-graphs"][0].reason
    assert "captures steps of decoding alone" in skipped(found(plan=A10)["cuda-graphs"])
    for other in ("DEEPSEEK_V2_LITE", "QWEN_3_NEXT_80B"):
        planned = made(model(other), "NVIDIA H200")
        assert "captured for decoding alone" in skipped(found(first=held_up(by=0.2), plan=planned)["cuda-graphs"])
    assert "never mixed" in skipped(found(first=profile("0.25.1", 1.0, 1))["cuda-graphs"])
    assert "up for 1.0% of the time only" in skipped(found(first=held_up(by=0.01))["cuda-graphs"])
    long = msgspec.structs.replace(profile(), input_len=481)
    assert "has 513 tokens, and graphs are made for 512" in skipped(found(first=long)["cuda-graphs"])
    assert "the recipe has --enforce-eager" in skipped(found({"--enforce-eager": ""})["cuda-graphs"])
    assert skipped(found(plan="no GPU answers")["cuda-graphs"]) == "no GPU answers"


def test_a_front_end_that_the_engines_own_times_prove_late_is_worth_a_try() -> None:
    ladder = decode(H200_LADDER.read_bytes(), "h200")
    steps = found(first=msgspec.structs.replace(ladder, rungs=(ladder.rungs[0], ladder.rungs[-1])))
    assert added(steps["front-end"]) == [("--api-server-count", "4"), ("--stream-interval", "4")]
    assert "every 9.8 ms, and chunks came every 25.4: one process cannot keep up" in steps["front-end"][0].reason
    assert "keeps up" in skipped(found()["front-end"])
