"""What a profile says about where its numbers come from: target, engine, model, machine; nothing in it is guessed."""

import os
import platform
from pathlib import Path

import msgspec

from lpxdoctor import __version__
from lpxdoctor.decode import engine, noise
from lpxdoctor.decode.gpu import Sampler
from lpxdoctor.decode.profile import Engine, Host, Profile, Rung
from lpxdoctor.decode.target import Target
from lpxdoctor.decode.workload import Workload

_ID_DIGITS = 6
_HALF_PRECISIONS = ("bfloat16", "float16")


class _Quantization(msgspec.Struct, frozen=True):
    quant_method: str | None = None


class _Config(msgspec.Struct, frozen=True):
    torch_dtype: str | None = None
    dtype: str | None = None
    quantization_config: _Quantization | None = None


def profile(
    target: Target,
    sampler: Sampler,
    workload: Workload,
    rungs: tuple[Rung, ...],
    *,
    started: str,
    ended: str,
    interrupted: bool,
    command: tuple[str, ...],
) -> Profile:
    """Put the rungs together with everything that is known about how they came about."""
    precision, why = _precision(target)
    gpus = _gpus(rungs)
    unknown = {
        **({} if precision else {"precision": why}),
        **({} if gpus else {"gpu": sampler.failure or "no GPU was seen busy while anything was measured"}),
        **({} if sampler.driver else {"driver": sampler.failure or "NVML does not tell it"}),
    }
    return Profile(
        id=workload.nonce[:_ID_DIGITS],
        started=started,
        ended=ended,
        interrupted=interrupted,
        lpxdoctor=__version__,
        command=command,
        nonce=workload.nonce,
        target=target.deployment.url if target.deployment else target.endpoint.url,
        deployment=target.deployment.name if target.deployment else None,
        reached=target.reached,
        model=target.model.id,
        precision=precision,
        gpu=gpus,
        driver=sampler.driver,
        input_len=workload.input_len,
        input_exact=workload.dialect.is_exact,
        api=workload.dialect.path,
        output_len=workload.output_len,
        engine=_engine(target, unknown),
        client_host=_host(),
        unknown=unknown,
        rungs=rungs,
        pooled_variance=noise.pooled(rungs),
    )


def _gpus(rungs: tuple[Rung, ...]) -> tuple[str, ...] | None:
    busy = {gpu.index: gpu.name for rung in rungs for gpu in rung.gpus}
    return tuple(name for _, name in sorted(busy.items())) or None


def _engine(target: Target, unknown: dict[str, str]) -> Engine:
    record = target.deployment
    version = engine.version(target.endpoint) or (record.engine_version if record else None)
    metrics = engine.metrics(target.endpoint)
    if version is None:
        unknown["engine.version"] = "the server does not tell it at /version"
    if record is None:
        unknown["engine.image"] = unknown["engine.arguments"] = "measured by URL, not as a deployment on record"
    if not metrics.cache_config:
        unknown["engine.cache_config"] = "the server's /metrics has no vllm:cache_config_info"
        unknown["rungs.engine"] = "the server's /metrics has none of vLLM's counters"
    if target.model.max_model_len is None:
        unknown["engine.max_model_len"] = "the server's /v1/models does not tell it"
    return Engine(
        version=version,
        image=record.image if record else None,
        arguments=record.arguments if record else None,
        max_model_len=target.model.max_model_len,
        cache_config=metrics.cache_config or None,
    )


def _precision(target: Target) -> tuple[str | None, str]:
    """Return the precision of the weights and "", or None and why it is not known."""
    record = target.deployment
    arguments = record.arguments if record else ()
    for option in ("--quantization", "-q", "--dtype"):
        value = _option(arguments, option)
        if value is not None and value != "auto":
            return value, ""
    if record is None:
        return None, "the engine does not tell it, and measured by URL its arguments are not known"
    if not target.is_local:
        return None, f"the arguments leave it to the model's config.json, which is on {record.host}"
    return _configured(Path(record.model_path) / "config.json")


def _option(arguments: tuple[str, ...], name: str) -> str | None:
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None


def _configured(path: Path) -> tuple[str | None, str]:
    """Read what vLLM's `--dtype auto` makes of a model: its quantization, else its own half precision."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return None, f"{path} cannot be read: {error}"
    if config.quantization_config and config.quantization_config.quant_method:
        return config.quantization_config.quant_method, ""
    dtype = config.dtype or config.torch_dtype
    if dtype in _HALF_PRECISIONS:
        return dtype, ""
    return None, f"{path} says {dtype}, and the engine chooses a half precision for that itself"


def _host() -> Host:
    return Host(name=platform.node(), kernel=platform.release(), cpu=_cpu(), cores=os.cpu_count())


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
