"""What is known of a model, a GPU, an engine and its first measurement in; what is worth trying, and why, out.

One rule a variable, in the order in which they are tried: what moves most bytes first. A rule yields candidates with a
reason each, or one that is skipped with the reason why.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from packaging.version import Version

from lpxdoctor.decode.front_end import late
from lpxdoctor.errors import UsageError
from lpxdoctor.sizing.budget import defaults
from lpxdoctor.sizing.cache import State
from lpxdoctor.tune.draft import unlike
from lpxdoctor.tune.service import Settings
from lpxdoctor.tune.situation import Candidate, Situation

_LUMPS = 1.2  # tokens per chunk from which on the API server is taken to be behind its engine
_SEVERAL, _INTERACTIVE, _CROWDED = 2, 32, 256  # requests at once
_SERVERS = 4
_CAPTURED = 512  # tokens of the largest step that a CUDA graph is made for, by default
_LITTLE = 0.02  # of the time, which is no more than what a candidate has to gain
_FP8 = ("fp8", "fp8_per_tensor", "fp8_per_channel")  # and not of a block, which has other kernels
_GRAPH_FLAGS = ("--enforce-eager", "--compilation-config", "-cc", "-O", "--cudagraph-capture-sizes")


def candidates(situation: Situation) -> tuple[Candidate, ...]:
    """Return all candidates in order."""
    return tuple(found for rule in RULES.values() for found in rule(situation))


def _skip(step: str, why: str, settings: Settings | None = None) -> Candidate:
    return Candidate(step=step, settings=settings or Settings(), skipped=why)


def _lacks(situation: Situation, since: str, until: str = "") -> str:
    """Return why this engine lacks an option that came with a version, "" where it has it."""
    version = situation.version
    if version is None:
        return "the engine's version is not known"
    if version < Version(since):
        return f"vLLM {version} does not know it; {since} does"
    return f"vLLM {version} does so by itself, since {until}" if until and version >= Version(until) else ""


def _given(situation: Situation) -> Iterator[Candidate]:
    for number, settings in enumerate(situation.given, start=1):
        yield Candidate(step=f"given {number}", settings=settings, reason="typed with --try")


def _weights(situation: Situation) -> Iterator[Candidate]:
    step, plan, given = "weights", situation.plan, situation.flags.get("--quantization", "")
    if given:
        yield _library(situation, given, ()) or _skip(step, f"the recipe says --quantization {given}")
    elif isinstance(plan, str):
        yield _skip(step, plan)
    else:
        stored = plan.options[0]
        made = [one for one in plan.options if one.native and not one.stored and one.precision.arguments]
        for option in made:
            faster = stored.steps[0].bytes / option.steps[0].bytes
            bound = f": {faster:.2f} times the ceiling of one stream" if plan.card.bytes_per_s else ""
            reason = f"{plan.card.name} computes in {option.precision.name}{bound}"
            # What gains most comes first: then nothing that gains less costs a second look.
            if other := _library(situation, option.precision.name, option.precision.arguments):
                yield replace(other, reason=f"{reason}; {other.reason}")
            yield Candidate(step=step, settings=Settings(option.precision.arguments), reason=reason)
        if not made:
            name, is_own = stored.precision.name, bool(plan.model.weights.scheme)
            own = f"{plan.model.name} is stored as {name}, and is served so"
            why = own if is_own else f"{plan.card.name} has no better than {name}"
            yield _library(situation, name, ()) or _skip(step, why)


def _library(situation: Situation, precision: str, arguments: tuple[str, ...]) -> Candidate | None:
    """Return FP8 with the matrix products of PyTorch's library, cuBLASLt, in place of vLLM's own CUTLASS kernels.

    On an H200 at 32 at once they made 1.10 times the tokens (docs/results/decode-h200.md), and 0.96 times those of one
    stream. The option came with vllm-project/vllm#39538; a mixture's experts do not heed it.
    """
    plan = situation.plan
    if isinstance(plan, str) or precision not in _FP8 or "fp8" not in plan.card.native or plan.model.weights.experts:
        return None
    if situation.most < _SEVERAL or "--linear-backend" in situation.flags or _lacks(situation, "0.21.0"):
        return None
    settings = Settings((*arguments, "--linear-backend", "torch"))
    reason = f"{situation.most} at once: cuBLASLt's products may suit batches better than vLLM's own"
    return Candidate(step="weights", settings=settings, reason=reason)


def _compiled(situation: Situation) -> Iterator[Candidate]:
    step = "compilation"
    if "--enforce-eager" not in situation.flags:
        yield _skip(step, "the engine compiles and captures CUDA graphs by default")
    elif isinstance(situation.plan, str):
        yield _skip(step, situation.plan, Settings(removed=("--enforce-eager",)))
    else:
        reason = "eager mode launches every kernel of every step from Python"
        yield Candidate(step=step, settings=Settings(removed=("--enforce-eager",)), reason=reason)


def _graphs(situation: Situation) -> Iterator[Candidate]:
    """CUDA graphs of steps that mix prompts and decoding, where the attention kernels of the GPU can be captured so.

    Those of Hopper can (FlashAttention 3), for ordinary attention; elsewhere vLLM would go back to its default
    (get_cudagraph_support of its v1/attention/backends). FULL: vLLM's CUDAGraphMode.
    """
    step, plan = "cuda-graphs", situation.plan
    mixed, held_up = situation.first.input_len + situation.most, _held_up(situation)
    given = next((flag for flag in _GRAPH_FLAGS if flag in situation.flags), "")
    if given:
        yield _skip(step, f"the recipe has {given}")
    elif situation.most < _SEVERAL:
        yield _skip(step, "one request at a time: prompts and decoding are never mixed")
    elif isinstance(plan, str):
        yield _skip(step, plan)
    elif not plan.card.capability.startswith("9."):
        yield _skip(step, f"on {plan.card.name} vLLM captures steps of decoding alone in full")
    elif any(isinstance(layer, State) or layer.latent for layer in plan.model.layers):
        yield _skip(step, f"{plan.model.name} has layers with a state or latent attention: captured for decoding alone")
    elif mixed > _CAPTURED:
        yield _skip(step, f"a step with a prompt has {mixed} tokens, and graphs are made for {_CAPTURED} at most")
    elif why := _lacks(situation, "0.11.0"):
        yield _skip(step, why)
    elif held_up is not None and held_up < _LITTLE:
        yield _skip(step, f"steps with a prompt hold the others up for {held_up:.1%} of the time only")
    else:
        settings = Settings(("--compilation-config", json.dumps({"cudagraph_mode": "FULL"})))
        cost = "" if held_up is None else f", and such steps hold the others up for {held_up:.0%} of the time"
        reason = f"a step with a prompt in it has {mixed} tokens{cost}: one graph with attention in it, not one a layer"
        yield Candidate(step=step, settings=settings, reason=reason)


def _held_up(situation: Situation) -> float | None:
    """Return the share of the time by which steps that are longer than most hold answers up, at the most at once.

    Steps that compute a prompt besides are those. The mean is the engine's own where it tells one, since a front end
    that is late makes chunks come unevenly too; None where that is all there is to see.
    """
    rung = max(situation.first.rungs, key=lambda rung: rung.concurrency)
    own = rung.engine.inter_token_mean_ms if rung.engine else None
    mean, usual = own or rung.itl_ms.mean, rung.itl_ms.p50
    if not mean or usual is None or (rung.tokens_per_chunk or 1.0) >= _LUMPS:
        return None
    return max(1 - usual / mean, 0.0)


def _mode(situation: Situation) -> Iterator[Candidate]:
    step, most = "performance-mode", situation.most
    mode = "interactivity" if most <= _INTERACTIVE else "throughput" if most >= _CROWDED else ""
    settings = Settings(("--performance-mode", mode)) if mode else Settings()
    if "--performance-mode" in situation.flags:
        yield _skip(step, "the recipe chooses one")
    elif not mode:
        yield _skip(step, f"{most} at once are neither few nor many: balanced, which is the default, is for them")
    elif why := _lacks(situation, "0.17.0"):
        yield _skip(step, why, settings)
    else:
        few = "a CUDA graph for every batch size to 32, and kernels for latency"
        many = "twice the sequences and tokens a step"
        yield Candidate(step=step, settings=settings, reason=few if mode == "interactivity" else many)


def _scheduling(situation: Situation) -> Iterator[Candidate]:
    step, settings = "scheduling", Settings(("--async-scheduling",))
    reason = "the next step is prepared while the GPU computes this one"
    if "--no-async-scheduling" in situation.flags:
        yield Candidate(step=step, settings=Settings(removed=("--no-async-scheduling",)), reason=reason)
    elif "--async-scheduling" in situation.flags:
        yield _skip(step, "the recipe has it")
    elif why := _lacks(situation, "0.10.0", "0.14.0"):
        yield _skip(step, why, settings)
    else:
        yield Candidate(step=step, settings=settings, reason=reason)


def _front_end(situation: Situation) -> Iterator[Candidate]:
    step = "front-end"
    rungs = situation.first.rungs
    lumps = max((rung.tokens_per_chunk or 1.0 for rung in rungs), default=1.0)
    at = max(rungs, key=lambda rung: rung.tokens_per_chunk or 1.0).concurrency
    proof = next((sign.seen[0] for rung in rungs if (sign := late(rungs[0], rung)) and sign.proved), "")
    if "--api-server-count" in situation.flags or "--stream-interval" in situation.flags:
        yield _skip(step, "the recipe sets it")
    elif not proof and ("--speculative-config" in situation.flags or lumps < _LUMPS):
        yield _skip(step, f"it keeps up: {lumps:.2f} tokens a chunk at most")
    elif why := _lacks(situation, "0.10.0"):
        yield _skip(step, why)
    else:
        seen = f"{proof or f'it sent {lumps:.1f} tokens at a time at {at} at once'}: one process cannot keep up"
        yield Candidate(step=step, settings=Settings(("--api-server-count", f"{_SERVERS}")), reason=seen)
        if not _lacks(situation, "0.13.0"):
            settings = Settings(("--stream-interval", "4"))
            yield Candidate(step=step, settings=settings, reason=f"{seen}; fewer, larger chunks cost it less")


def _cache(situation: Situation) -> Iterator[Candidate]:
    step, plan = "kv-cache", situation.plan
    if "--kv-cache-dtype" in situation.flags:
        yield _skip(step, f"the recipe says --kv-cache-dtype {situation.flags['--kv-cache-dtype']}")
    elif isinstance(plan, str):
        yield _skip(step, plan)
    elif plan.refusal:
        yield _skip(step, f"the plan says that the model does not fit: {plan.refusal.splitlines()[0]}")
    else:
        for form, tokens in plan.kv_tokens:
            settings = Settings(("--kv-cache-dtype", form))
            is_workstation = form == "nvfp4" and plan.card.capability.startswith("12.")
            if is_workstation and (why := _lacks(situation, "0.32.0")):  # flashinfer.py, supports_kv_cache_dtype
                yield _skip(step, f"{form} on {plan.card.name}: {why}", settings)
                continue
            reason = f"fewer bytes to read of it, and {tokens / plan.chosen.tokens:.1f} times the tokens"
            yield Candidate(step=step, settings=settings, reason=reason)
        if not plan.kv_tokens:
            yield _skip(step, f"{plan.card.name} computes attention in no format below 16 bit")


def _sequences(situation: Situation) -> Iterator[Candidate]:
    step, most, plan = "sequences", situation.most, situation.plan
    given = situation.flags.get("--max-num-seqs", "")
    usual = 0 if isinstance(plan, str) else defaults(plan.card).sequences
    limit = int(given) if given.isdigit() else usual
    if not limit:
        yield _skip(step, f"how many the engine runs at once is not known: {plan}")
    elif limit >= most:
        yield _skip(step, f"{limit} may run at once, and {most} were measured")
    else:
        reason = f"{most} at once are to be served, and the engine runs {limit}: the others wait"
        yield Candidate(step=step, settings=Settings(("--max-num-seqs", f"{most}")), reason=reason)


def _tokens(situation: Situation) -> Iterator[Candidate]:
    step, plan = "tokens-a-step", situation.plan
    given = situation.flags.get("--max-num-batched-tokens", "")
    usual = 0 if isinstance(plan, str) else defaults(plan.card).batched_tokens
    limit, wanted = int(given) if given.isdigit() else usual, situation.most * situation.first.input_len
    if not limit:
        yield _skip(step, f"how many the engine takes is not known: {plan}")
    elif wanted <= limit:
        yield _skip(step, f"{situation.most} prompts of {situation.first.input_len} tokens fit one step of {limit}")
    else:
        reason = f"prompts of {wanted} tokens may come at once, and a step takes {limit}"
        yield Candidate(step=step, settings=Settings(("--max-num-batched-tokens", f"{2 * limit}")), reason=reason)
        half = "shorter steps hold up decoding less"
        yield Candidate(step=step, settings=Settings(("--max-num-batched-tokens", f"{limit // 2}")), reason=half)


def _prefixes(situation: Situation) -> Iterator[Candidate]:
    step, settings = "prefix-cache", Settings(("--no-enable-prefix-caching",))
    if "--no-enable-prefix-caching" in situation.flags:
        yield _skip(step, "the recipe turns it off; what it gains shows with real prompts alone")
    elif not situation.unique_prompts:
        yield _skip(step, "prompts here share nothing, yours may: --unique-prompts tries without it", settings)
    else:
        yield Candidate(step=step, settings=settings, reason="prompts share nothing, so hashing them gains nothing")


def _speculation(situation: Situation) -> Iterator[Candidate]:
    step = "speculation"
    if "--speculative-config" in situation.flags:
        yield _skip(step, "the recipe has it")
        return
    if not situation.speculate:
        yield _skip(step, "its gain depends on the text: --speculate ngram, or a draft model's directory, tries it")
    for draft in situation.speculate:
        config: dict[str, object] = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
        if draft != "ngram":
            if why := unlike(situation.model, draft):
                yield _skip(step, why)
                continue
            config = {"model": draft, "num_speculative_tokens": 4}
        reason = "several tokens a step where a guess holds; measured on random prompts, yours may do better or worse"
        yield Candidate(step=step, settings=Settings(("--speculative-config", json.dumps(config))), reason=reason)


RULES: Mapping[str, Callable[[Situation], Iterator[Candidate]]] = {
    "given": _given,
    "weights": _weights,
    "compilation": _compiled,
    "cuda-graphs": _graphs,
    "performance-mode": _mode,
    "scheduling": _scheduling,
    "front-end": _front_end,
    "kv-cache": _cache,
    "sequences": _sequences,
    "tokens-a-step": _tokens,
    "prefix-cache": _prefixes,
    "speculation": _speculation,
}


def checked_steps(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the steps asked for, all where none is named; UsageError for a name that no step has."""
    unknown = [name for name in names if name not in RULES]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there is no such step. There are: {', '.join(RULES)}.")
    return names or tuple(RULES)
