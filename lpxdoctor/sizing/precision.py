"""Number formats of weights: what each takes, what computes in it, how the engine is told, and a checkpoint's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lpxdoctor.sizing.weights import Part, Tally


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A number format of the weights.

    Attributes:
        name: as --precision takes it.
        bits: of a quantized parameter with its share of the scales; None for 16 bit.
        native: what the matrix units must compute, as knowledge/gpu.toml names it; "" where they compute in 16 bit.
        arguments: what makes vLLM quantize a 16-bit checkpoint as it loads it.
        checkpoint: the kind of checkpoint that is needed instead, "" for none.
        least_capability: the lowest compute capability that vLLM runs it on.
    """

    name: str
    bits: Fraction | None = None
    native: str = ""
    arguments: tuple[str, ...] = ()
    checkpoint: str = ""
    least_capability: tuple[int, int] = (7, 5)


# Bits with scales: a group of 128 with a 16-bit scale and a 4-bit zero; a row with an fp32 scale, at 4096 inputs;
# 16 with an fp8 scale; 32 with an 8-bit exponent. Capabilities: get_min_capability of vLLM 0.33's quantizations.
HALF = (
    Precision(name="bf16", native="bf16", least_capability=(8, 0)),
    Precision(name="fp16", native="fp16", least_capability=(7, 0)),
)
LOWER = (
    Precision(name="fp8", bits=Fraction(8), native="fp8", arguments=("--quantization", "fp8"), least_capability=(8, 9)),
    Precision(name="int8", bits=Fraction(8) + Fraction(32, 4096), native="int8", checkpoint="W8A8"),
    Precision(name="nvfp4", bits=Fraction(9, 2), native="fp4", checkpoint="NVFP4", least_capability=(10, 0)),
    Precision(name="int4", bits=Fraction(4) + Fraction(20, 128), checkpoint="AWQ or GPTQ"),
)
_STORED_BITS = {**{p.name: p.bits for p in LOWER if p.bits}, "mxfp4": Fraction(17, 4)}
_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
}


def named(name: str) -> Precision:
    """Return a precision by name."""
    return next(precision for precision in (*HALF, *LOWER) if precision.name == name)


def stored_scheme(quantization: Mapping[str, Any]) -> str:
    """Return the name of a checkpoint's own format from its quantization_config: "" for 16 bit, "other" if unknown."""
    if not quantization:
        return ""
    method = str(quantization.get("quant_method", "")).lower()
    if method in _METHODS:
        return _METHODS[method]
    if method.startswith(("awq", "gptq")) or method in ("bitsandbytes", "auto-round"):
        bits = quantization.get("bits", quantization.get("w_bit", 4))
        if method == "bitsandbytes" and quantization.get("load_in_8bit") is True:
            bits = 8
        return {4: "int4", 8: "int8"}.get(bits if isinstance(bits, int) else 0, "other")
    if method.startswith("modelopt"):
        inner = quantization.get("quantization")
        algorithm = (inner if isinstance(inner, dict) else quantization).get("quant_algo")
        known = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "int4"}
        return known.get(algorithm, "other") if isinstance(algorithm, str) else "other"
    return _compressed(quantization) if method == "compressed-tensors" else "other"


def _compressed(quantization: Mapping[str, Any]) -> str:
    """Return the format of a compressed-tensors checkpoint: that of all its groups' weights, "other" for a mixture."""
    groups = quantization.get("config_groups")
    found = {_group(group) for group in groups.values()} if isinstance(groups, dict) else set[str]()
    return found.pop() if len(found) == 1 else "other"


def _group(group: Any) -> str:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return "other"
    kinds = {("int", 4): "int4", ("int", 8): "int8", ("float", 8): "fp8", ("float", 4): "nvfp4"}
    kind, bits = weights.get("type", "int"), weights.get("num_bits")
    return kinds.get((kind, bits), "other") if isinstance(kind, str) and isinstance(bits, int) else "other"


def stored_kv_format(quantization: Mapping[str, Any]) -> str:
    """Return the KV format that a checkpoint asks for, which vLLM's auto follows for modelopt's alone."""
    if not str(quantization.get("quant_method", "")).startswith("modelopt"):
        return "auto"
    inner = quantization.get("quantization")
    asked = (inner if isinstance(inner, dict) else quantization).get("kv_cache_quant_algo")
    return {"fp8": "fp8", "nvfp4": "nvfp4"}.get(asked.lower(), "auto") if isinstance(asked, str) else "auto"


def stored_tally(tally: Tally, scheme: str, half_bytes: int) -> Tally | None:
    """Return the bytes by part of a checkpoint whose files are not there; None where the format is unknown.

    Of mxfp4 checkpoints (gpt-oss) only the experts are quantized.
    """
    bits = _STORED_BITS.get(scheme)
    if scheme and bits is None:
        return None
    quantized = () if not scheme else (Part.EXPERTS,) if scheme == "mxfp4" else (Part.LINEAR, Part.EXPERTS)
    return Tally(
        {
            part: -(-count * bits // 8) if bits is not None and part in quantized else count * half_bytes
            for part, count in tally.items()
        }
    )
