"""What each layer of a model keeps of a sequence in; bytes per token in every KV format, and per state, out."""

from dataclasses import dataclass

from lpxdoctor.errors import UsageError

FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2")
# As vLLM's --kv-cache-dtype names them; auto is the model's own 16 bit, or what the checkpoint asks for.
FORMATS = (
    "auto",
    "float16",
    "bfloat16",
    *FP8,
    "nvfp4",
    "fp8_per_token_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "fp8_ds_mla",
    "nvfp4_ds_mla",
)
# Packed formats of the latent attention with 512 + 64 elements, in bytes a token: 512 of 8 bit with 16 of scales and 64
# rotary of 16 bit; of 4 bit. Source: vllm/v1/attention/backends/mla/flashmla_sparse.py.
_PACKED = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_PACKED_ELEMENTS = 576
_SCALE_BYTES = 4  # one fp32 scale a token, head and side


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One layer that keeps keys and values.

    heads are KV heads, key and value elements of a head's two vectors. window or chunk is the reach in tokens of a
    layer that does not see everything. latent is multi-head latent attention: one vector that every GPU keeps in full,
    value 0. fixed_bytes is what a token takes where the KV format does not matter, as in a sparse attention's index.
    """

    heads: int
    key: int
    value: int
    window: int | None = None
    chunk: int | None = None
    latent: bool = False
    fixed_bytes: int | None = None

    def token_bytes(self, form: str, half_bytes: int, tensor_parallel: int = 1) -> int:
        """Return the bytes of one token on one GPU; UsageError where the format cannot hold this attention.

        KV heads are shared out among the GPUs, and repeated where there are fewer of them than GPUs.
        """
        if self.fixed_bytes is not None:
            return self.fixed_bytes
        if form in _PACKED:
            if not self.latent or self.key != _PACKED_ELEMENTS:
                raise UsageError(
                    f"{form} holds latent attention with 512 + 64 elements (DeepSeek), and not this model's"
                )
            return _PACKED[form]
        heads = 1 if self.latent else max(1, self.heads // tensor_parallel)
        if self.latent and form not in ("auto", "float16", "bfloat16", *FP8):
            raise UsageError(f"{form} does not hold latent attention. Type: --kv-cache-dtype auto, or fp8")
        return heads * (_vector_bytes(self.key, form, half_bytes) + _vector_bytes(self.value, form, half_bytes))


def _vector_bytes(elements: int, form: str, half_bytes: int) -> int:
    """Return the bytes of one head's key or value vector."""
    if form == "auto":
        return elements * half_bytes
    if form in ("float16", "bfloat16"):
        return elements * 2
    if form in FP8:  # one scale for the whole tensor
        return elements
    if form == "nvfp4":  # two elements a byte, an fp8 scale for every 16. vllm/utils/torch_utils.py
        if elements % 16:
            raise UsageError(
                f"KV caches of nvfp4 hold heads of a multiple of 16 elements; this model's have {elements}."
            )
        return elements // 2 + elements // 16
    if elements == 0:
        return 0
    return (elements // 2 if form.startswith("int4") else elements) + _SCALE_BYTES


@dataclass(frozen=True)
class State:
    """One layer that keeps a state of constant size.

    tensors are (elements, bytes of one; None for the model's own) each. copies is how many the engine holds of a
    request's with prefix caching, which goes back to earlier ones; without it holds one.
    """

    tensors: tuple[tuple[int, int | None], ...]
    copies: int = 2

    def bytes(self, half_bytes: int, tensor_parallel: int = 1) -> int:
        """Return the bytes of one state on one GPU, which holds its share of the channels."""
        return sum(-(-count // tensor_parallel) * (size or half_bytes) for count, size in self.tensors)


Layer = Attention | State
