"""What people see when decoding is slow or wrong in; where to look first, by which order, and what to do, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.symptoms import Symptoms

# A GPU that is held back or gone explains any slowness, and so does an engine that does not serve.
_HELD_BACK = ("gpu.lost", "gpu.hardware-slowdown", "gpu.power-brake", "gpu.thermal-slowdown")
_NOT_SERVING = ("engine.not-running", "engine.not-healthy")


def _told(symptoms: Symptoms, check_id: str) -> Iterator[Finding]:
    for symptom in symptoms.of(check_id):
        yield Finding(symptom.meaning, seen=(Seen("told", symptom.words),), confirm=symptom.ask)


@check("decode.first-token-slow", Severity.WARN, layer="engine", after=[*_HELD_BACK, *_NOT_SERVING])
def first_token_slow(symptoms: Symptoms) -> Iterator[Finding]:
    """The first token takes long (TTFT).

    Why: before the first token the whole prompt is computed (prefill), and before that the request waits in a queue.
        Prefill grows with the prompt's length; a queue grows when more requests come than the engine takes; a kernel
        that is compiled for a new shape adds seconds once.
    Fix: look at the input first: how long is the prompt of a slow request. Then shorten it, keep what is common at its
        beginning (prefix caching), let chunked prefill and continuous batching mix it with decoding, and admit fewer
        requests at once. Warm up with the lengths that you serve. Splitting prefill from decoding (disaggregation) pays
        at scale only.
    Source: https://docs.vllm.ai/en/latest/configuration/optimization.html
    """
    yield from _told(symptoms, "decode.first-token-slow")


@check("decode.next-tokens-slow", Severity.WARN, layer="engine", after=[*_HELD_BACK, *_NOT_SERVING])
def next_tokens_slow(symptoms: Symptoms) -> Iterator[Finding]:
    """The tokens after the first take long (TPOT, inter-token latency).

    Why: each step reads all weights and the KV cache of every request from the GPU's memory, so bandwidth sets the
        ceiling: bytes per step over bytes per second. Below it are launches without CUDA graphs, weights that are not
        loaded as quantized or are computed in FP32, clocks that heat or power holds down, and a batch that is too
        large.
    Fix: measure against the ceiling (lpxdoctor baseline), then one change at a time: no --enforce-eager, a quantization
        that this GPU computes natively (FP8 from Ada and Hopper on), FP8 KV cache for long contexts, fewer requests at
        once, speculative decoding for single streams.
    Source: https://docs.vllm.ai/en/latest/configuration/optimization.html
    """
    yield from _told(symptoms, "decode.next-tokens-slow")


@check("decode.memory-grows", Severity.WARN, layer="engine")
def memory_grows(symptoms: Symptoms) -> Iterator[Finding]:
    """Memory grows while the engine serves.

    Why: vLLM takes its share of the GPU at the start and fills it with KV cache by concurrency and sequence length, so
        the cache's use grows and the GPU's memory does not. What grows beyond that share, or in main memory, is another
        process, a growing prefix cache on the CPU, or a leak.
    Fix: limit --max-num-seqs, --max-model-len and each request's max_tokens; see whether the growth ends at the share.
        Where it does not, restart on a limit and report it with the version.
    Source: https://docs.vllm.ai/en/latest/configuration/conserving_memory.html
    """
    yield from _told(symptoms, "decode.memory-grows")


@check("decode.gpu-underused", Severity.WARN, layer="engine", after=_NOT_SERVING)
def gpu_underused(symptoms: Symptoms) -> Iterator[Finding]:
    """The GPU is used little while requests are served.

    Why: one request cannot fill a GPU: decoding waits for memory and not for arithmetic. With many requests, low use
        means that they do not arrive at once, that the scheduler or tokenization on the CPU holds them up, or that
        only one of several GPUs has the work. High use proves nothing either: tokens/s and TTFT are the verdict.
    Fix: raise the concurrency step by step and watch tokens/s (lpxdoctor baseline); raise --max-num-seqs; give the
        engine free CPU cores; start a model that fits on one GPU there, and one engine on each other GPU.
    Source: https://docs.vllm.ai/en/latest/configuration/optimization.html
    """
    yield from _told(symptoms, "decode.gpu-underused")


@check("decode.one-request-slow", Severity.WARN, layer="engine", after=[*_HELD_BACK, *_NOT_SERVING])
def one_request_slow(symptoms: Symptoms) -> Iterator[Finding]:
    """Single requests are suddenly slow.

    Why: mostly their input is longer than usual, or one long sample holds up the others of its batch. Else another
        process took the GPU for a moment, the KV cache was full and the request was preempted, or a new shape was
        compiled.
    Fix: log input and output tokens, TTFT and total time per request and compare the slow one with the median; refuse
        prompts beyond the length that you plan for; give batch jobs an engine of their own.
    Source: https://docs.vllm.ai/en/latest/configuration/optimization.html
    """
    yield from _told(symptoms, "decode.one-request-slow")


@check("decode.output-garbled", Severity.WARN, layer="engine", after=["gpu.ecc-uncorrectable"])
def output_garbled(symptoms: Symptoms) -> Iterator[Finding]:
    """The output is garbled or repeats itself.

    Why: the usual reasons are weights that were quantized, or are loaded, in the wrong way; a tokenizer or chat
        template of another model; float16 where the model needs bfloat16's range; on several GPUs without NVLink, wrong
        data over a bus that the IOMMU translates.
    Fix: run the same prompt at temperature 0 with the unquantized model in bfloat16 on one GPU, and change one thing at
        a time until it breaks.
    Source: https://docs.vllm.ai/en/latest/usage/troubleshooting.html
    """
    yield from _told(symptoms, "decode.output-garbled")


@check("decode.accuracy-lost", Severity.WARN, layer="engine")
def accuracy_lost(symptoms: Symptoms) -> Iterator[Finding]:
    """Answers got worse with quantization.

    Why: fewer bits lose detail, small models more than large ones, and INT4 more than FP8 or INT8. Without calibration
        on data like yours it is worse. A KV cache in FP8 without scales loses on long contexts.
    Fix: FP8 or INT8 in place of INT4, or a checkpoint that was calibrated (AWQ, GPTQ); decide by a regression set of
        your own against half precision, before traffic is moved.
    Source: https://docs.vllm.ai/en/latest/features/quantization/
    """
    yield from _told(symptoms, "decode.accuracy-lost")


@check("decode.start-compiling", Severity.INFO, layer="engine", after=_NOT_SERVING)
def start_compiling(symptoms: Symptoms) -> Iterator[Finding]:
    """The engine's start takes long and looks stuck.

    Why: weights are read from disk, kernels are compiled for this GPU and CUDA graphs captured, for the first time on a
        host for minutes. The log is silent in between.
    Fix: wait while its CPU time grows. Keep ~/.cache/vllm in a volume, so that the next start is short; warm up before
        traffic; give a health check a start period of its own.
    Source: https://docs.vllm.ai/en/latest/design/torch_compile.html
    """
    yield from _told(symptoms, "decode.start-compiling")


@check("decode.preempted", Severity.WARN, layer="engine", after=_NOT_SERVING)
def preempted(symptoms: Symptoms) -> Iterator[Finding]:
    """Requests are preempted because the KV cache is full.

    Why: more requests run than the cache holds at their lengths. A preempted one is computed again from its prompt, so
        its latency doubles and throughput falls.
    Fix: lower --max-num-seqs or --max-model-len, raise --gpu-memory-utilization a little, or use --kv-cache-dtype fp8
        where the GPU has FP8. lpxdoctor plan says how many requests fit.
    Source: https://docs.vllm.ai/en/latest/configuration/optimization.html
    """
    yield from _told(symptoms, "decode.preempted")


@check("decode.request-too-long", Severity.INFO, layer="deployment")
def request_too_long(symptoms: Symptoms) -> Iterator[Finding]:
    """A request is longer than the engine's context.

    Why: prompt and answer together must fit into --max-model-len. The engine refuses with 400, and will again: such a
        request is not to be retried.
    Fix: cut the input in the client, or raise --max-model-len as far as model and KV cache allow.
    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    """
    yield from _told(symptoms, "decode.request-too-long")


@check("decode.model-name-unknown", Severity.INFO, layer="deployment")
def model_name_unknown(symptoms: Symptoms) -> Iterator[Finding]:
    """A client asks for a model by a name that the engine does not serve.

    Why: the engine answers 404 to any name but the one that it was started with: the path or repository of --model, or
        what --served-model-name says instead. It is not to be retried.
    Fix: take the name from /v1/models, or start the engine with --served-model-name NAME.
    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    """
    yield from _told(symptoms, "decode.model-name-unknown")


@check("decode.key-refused", Severity.WARN, layer="deployment")
def key_refused(symptoms: Symptoms) -> Iterator[Finding]:
    """The engine asks for an API key, and a client does not send it.

    Why: with --api-key, or VLLM_API_KEY in its environment, the engine answers 401 to every request below /v1 that
        does not bring the key as a bearer token; /health and /metrics stay open. A variable that a shell's profile sets
        makes it so without anybody typing it. It is not to be retried.
    Fix: send the header Authorization: Bearer KEY (OPENAI_API_KEY in most clients), or start the engine without a key
        where nobody else reaches it.
    Source: https://docs.vllm.ai/en/latest/usage/security.html
    """
    yield from _told(symptoms, "decode.key-refused")


@check("decode.chat-template-missing", Severity.WARN, layer="deployment")
def chat_template_missing(symptoms: Symptoms) -> Iterator[Finding]:
    """The model has no chat template, or one that does not take what is sent.

    Why: chat requests are turned into one text by a template that comes with chat models. A base model has none, and
        the engine refuses, or answers nonsense with one that does not fit.
    Fix: take the instruct or chat version of the model, or give --chat-template FILE with the one that it was trained
        on.
    Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    """
    yield from _told(symptoms, "decode.chat-template-missing")
