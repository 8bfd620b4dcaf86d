"""What people tell of how they serve in; causes of slow decoding that no error names, and techniques misused, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.symptoms import Symptoms


def _told(symptoms: Symptoms, check_id: str) -> Iterator[Finding]:
    for symptom in symptoms.of(check_id):
        yield Finding(symptom.meaning, seen=(Seen("told", symptom.words),), confirm=symptom.ask)


@check("decode.generate-loop", Severity.WARN, layer="engine")
def generate_loop(symptoms: Symptoms) -> Iterator[Finding]:
    """The model runs in a bare generate() loop.

    Why: one request after the other, a KV cache that is laid out anew, no CUDA graphs: most of the GPU's time is spent
        waiting. It shows that model and driver fit, and nothing about speed.
    Fix: serve it with an engine that has a paged KV cache and continuous batching (vLLM, TensorRT-LLM); lpxdoctor
        deploy rolls a pinned one out, and lpxdoctor baseline measures both.
    Source: https://docs.vllm.ai/en/latest/
    """
    yield from _told(symptoms, "decode.generate-loop")


@check("decode.weights-upcast", Severity.WARN, layer="engine")
def weights_upcast(symptoms: Symptoms) -> Iterator[Finding]:
    """The weights are held or computed in FP32.

    Why: decoding is bound by the bytes that are read for each token; FP32 has twice those of half precision. It happens
        by a config that says float32, by --dtype float32, or by code that copies weights while it runs.
    Fix: --dtype auto or bfloat16 (half before Ampere), and a checkpoint whose config says so.
    Source: https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
    """
    yield from _told(symptoms, "decode.weights-upcast")


@check("decode.logged-per-token", Severity.WARN, layer="engine")
def logged_per_token(symptoms: Symptoms) -> Iterator[Finding]:
    """Something is logged, traced or waited for at every token.

    Why: a step of a small model takes a few milliseconds; a synchronous write, a callback or CUDA_LAUNCH_BLOCKING adds
        as much to each.
    Fix: log once per request and from another thread; no VLLM_LOGGING_LEVEL=DEBUG, VLLM_TRACE_FUNCTION or
        CUDA_LAUNCH_BLOCKING where speed counts.
    Source: https://docs.vllm.ai/en/latest/usage/troubleshooting.html
    """
    yield from _told(symptoms, "decode.logged-per-token")


@check("decode.shapes-recompiled", Severity.WARN, layer="engine")
def shapes_recompiled(symptoms: Symptoms) -> Iterator[Finding]:
    """Kernels are compiled again while requests wait.

    Why: dynamic shapes, or a compile cache that is not kept, make the engine compile for lengths and batch sizes that
        it meets for the first time; safety and shape checks then run with each request.
    Fix: warm up with the shapes that you serve, keep ~/.cache/vllm in a volume, leave the graph sizes to the engine.
    Source: https://docs.vllm.ai/en/latest/design/torch_compile.html
    """
    yield from _told(symptoms, "decode.shapes-recompiled")


@check("decode.several-gpus-no-faster", Severity.INFO, layer="engine")
def several_gpus_no_faster(symptoms: Symptoms) -> Iterator[Finding]:
    """More GPUs do not make a small model faster.

    Why: with tensor parallelism every layer ends with an exchange between the cards, and a step of a small model is too
        short to pay for it. NVLink that is present proves nothing; each GPU's own utilization while serving does.
    Fix: serve a model that fits one GPU on one GPU, and start another engine on each other GPU.
    Source: https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html
    """
    yield from _told(symptoms, "decode.several-gpus-no-faster")


@check("decode.quantized-not-faster", Severity.INFO, layer="engine")
def quantized_not_faster(symptoms: Symptoms) -> Iterator[Finding]:
    """Quantization does not make decoding faster.

    Why: it pays where the GPU computes the format natively, or a fused kernel (Marlin) reads the small weights
        directly. Else each step takes them apart first. FP8 is native from compute capability 8.9 on, and not on
        Ampere.
    Fix: see in the log which kernel is used and how much memory the weights take; take awq_marlin or gptq_marlin, or
        FP8 where it is native; keep half precision where neither is.
    Source: https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html
    """
    yield from _told(symptoms, "decode.quantized-not-faster")


@check("decode.draft-does-not-fit", Severity.INFO, layer="engine")
def draft_does_not_fit(symptoms: Symptoms) -> Iterator[Finding]:
    """Speculative decoding does not pay, or does not start.

    Why: a draft model proposes tokens and the target checks them in one step. Both must share a tokenizer, and enough
        proposals must be accepted; with a full batch the GPU has no time to spare for them.
    Fix: a draft of the same family, or n-gram and EAGLE drafts made for the target; use it for few streams at once and
        look at the acceptance rate in the log.
    Source: https://docs.vllm.ai/en/latest/features/spec_decode.html
    """
    yield from _told(symptoms, "decode.draft-does-not-fit")
