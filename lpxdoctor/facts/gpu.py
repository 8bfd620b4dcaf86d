"""What NVML said in, the GPUs as the driver sees them out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lpxdoctor import knowledge
from lpxdoctor.evidence import Evidence, Probe, Program, Unreadable
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.facts.nvml import HUNG, FabricState, NvmlError, Process, Reason, Remaps
from lpxdoctor.knowledge.rows import GpuClass

NVML = Program("nvml", timeout_s=27.0)  # it ends by itself before

_GPU_IS_LOST = 15
_BRANDS: Mapping[str, GpuClass] = {
    "geforce": "geforce",
    "geforce_rtx": "geforce",
    "titan": "geforce",
    "titan_rtx": "geforce",
    "tesla": "data-center",
    "nvidia": "data-center",
    "quadro": "workstation",
    "quadro_rtx": "workstation",
    "nvidia_rtx": "workstation",
}


@dataclass(frozen=True, kw_only=True)
class Gpu(Fact):
    """One GPU. None is what it does not offer; what NVML refused is Unreadable."""

    index: int
    error: NvmlError | None  # why it gives no handle; nothing else is known of it then
    codes: frozenset[int]  # every error code that its readings ended with
    name: str
    uuid: str
    serial: str | None
    bus_id: str  # as /sys writes it: "0000:65:00.0"
    device_id: int
    brand: str  # NVML's word for it: "nvidia", "geforce_rtx"
    compute_capability: str
    virtualization: str | None  # "none", "passthrough", "vgpu", ...
    memory_total_mib: int
    memory_used_mib: int
    memory_free_mib: int
    bar1_mib: int | None
    bus_width_bits: int | None
    memory_clock_max_mhz: int | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    utilization_percent: int | None
    persistence: bool | None
    compute_mode: str | None  # "default", "exclusive-process", "exclusive-thread", "prohibited"
    ecc: tuple[bool, bool] | None  # now, and after the next reset
    ecc_corrected: int | None  # since the driver was loaded
    ecc_uncorrected: int | None
    ecc_uncorrected_ever: int | None
    sram_threshold_exceeded: bool | None
    remaps: Remaps | None
    retired_pages: tuple[int, int] | None  # for many corrected errors, for an uncorrectable one
    retirement_pending: bool | None
    recovery_action: int | None
    reasons: Reason | None
    temperature_c: int | None
    temperature_margin_c: int | None
    slowdown_c: int | None
    power_w: float | None
    power_limit_w: float | None
    power_default_w: float | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    mig: tuple[bool, bool] | None  # now, and after the next reset
    nvlinks: tuple[bool, ...]
    fabric: FabricState | None
    inforom_valid: bool | None
    processes: tuple[Process, ...]

    @property
    def subject(self) -> str:
        """How findings name it."""
        return f"GPU {self.index}"

    @property
    def reset_command(self) -> str:
        """What resets it; on an NVSwitch board all GPUs are reset at once, without -i."""
        return f"sudo nvidia-smi --gpu-reset -i {self.index}"

    @property
    def lost(self) -> bool:
        """Whether NVML said that it is gone."""
        return _GPU_IS_LOST in self.codes

    @property
    def others(self) -> tuple[Process, ...]:
        """The processes on it that are not our own."""
        return tuple(process for process in self.processes if not process.ours)

    @property
    def holders(self) -> tuple[Process, ...]:
        """The processes that hold its memory; raises Unreadable where it is held and none is shown."""
        if not self.others:
            raise Unreadable(
                f"{self.memory_held_mib} MiB of {self.subject} are held and the driver shows no process that holds them"
            )
        return self.others

    @property
    def memory_held_mib(self) -> int:
        """The memory that programs hold, our own apart."""
        return self.memory_used_mib - sum(process.memory_mib or 0 for process in self.processes if process.ours)

    @property
    def kind(self) -> GpuClass | None:
        """Its class: by the table of PCI ids, else by its brand; None where neither tells."""
        row = knowledge.load().gpu_by_pci(self.device_id)
        return row.kind if row else _BRANDS.get(self.brand)


@dataclass(frozen=True, kw_only=True)
class Gpus(Fact):
    """NVML's view of the host. Where NVML fails, gpus is Unreadable with its error."""

    probes: ClassVar[tuple[Probe, ...]] = (NVML,)

    error: NvmlError | None
    library: str  # the path of libnvidia-ml that was loaded, "" for none
    driver_version: str
    cuda_version: str  # the newest CUDA that the driver carries
    gpus: tuple[Gpu, ...]

    @property
    def models(self) -> str:
        """How many of each model: "8 x NVIDIA H200"."""
        counts = Counter(gpu.name for gpu in self.gpus)
        return " + ".join(f"{count} x {name}" for name, count in sorted(counts.items()))

    @property
    def working(self) -> tuple[Gpu, ...]:
        """The GPUs that gave a handle."""
        return tuple(gpu for gpu in self.gpus if gpu.error is None and not gpu.lost)

    @property
    def opened(self) -> frozenset[str]:
        """PCI addresses of the GPUs that NVML opened, which proves their driver; none where NVML failed."""
        try:
            return frozenset(gpu.bus_id for gpu in self.working)
        except Unreadable:
            return frozenset()

    @classmethod
    def parse(cls, evidence: Evidence) -> "Gpus":
        """Return the facts that the answer holds; never raises."""
        return cls(
            error=known(partial(_error, evidence)),
            library=known(lambda: str(evidence.value(NVML)["library"])),
            driver_version=known(partial(_version, evidence, "driver_version")),
            cuda_version=known(partial(_version, evidence, "cuda_version")),
            gpus=known(partial(_gpus, evidence)),
        )


def _error(evidence: Evidence) -> NvmlError | None:
    answer = evidence.answers.get(NVML.key)
    if answer and answer.failure == "timeout":  # the program itself hung: its interpreter, or a file system
        return NvmlError.of("NVML", HUNG)
    error = evidence.value(NVML)["error"]
    return NvmlError.of(str(error["call"]), int(error["code"])) if error else None


def _version(evidence: Evidence, name: str) -> str:
    value = evidence.value(NVML)
    if name not in value:
        raise Unreadable(f"NVML failed before it told its {name.replace('_', ' ')}: {_error(evidence)}")
    return str(value[name])


def _gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    error = _error(evidence)
    if error:
        raise Unreadable(f"NVML failed: {error}")
    return tuple(gpu(raw) for raw in evidence.value(NVML)["gpus"])


def gpu(raw: Mapping[str, Any]) -> Gpu:
    """Return one GPU from its readings; what was refused is Unreadable in it."""
    error = raw.get("error")
    codes = {error} if error else {v["error"] for v in raw.values() if isinstance(v, dict) and "error" in v}

    def read(name: str, shape: Any = lambda value: value) -> Any:
        return known(partial(_reading, raw, name, shape))

    return Gpu(
        index=int(raw["index"]),
        error=NvmlError.of("nvmlDeviceGetHandleByIndex_v2", error) if error else None,
        codes=frozenset(codes),
        ecc=read("ecc_mode", _two),
        ecc_corrected=read("ecc_errors", lambda v: v[0]),
        ecc_uncorrected=read("ecc_errors", lambda v: v[2]),
        ecc_uncorrected_ever=read("ecc_errors", lambda v: v[3]),
        remaps=read("remapped_rows", lambda v: Remaps(v[0], v[1], bool(v[2]), bool(v[3]))),
        retired_pages=read("retired_pages", _two),
        retirement_pending=read("retired_pending"),
        reasons=read("clocks_event_reasons", Reason),
        mig=read("mig_mode", _two),
        nvlinks=read("nvlinks", tuple) or (),
        fabric=read("fabric", lambda v: FabricState(v["state"], v["status"], v["health"])),
        processes=read("processes", _processes) or (),
        **{
            f"memory_{part}_mib": read("memory_mib", lambda v, part=part: v[part]) for part in ("total", "used", "free")
        },
        **{name: read(name) for name in _PLAIN},
    )


_PLAIN = (
    *("name", "uuid", "serial", "bus_id", "device_id", "brand", "compute_capability", "virtualization"),
    *("bar1_mib", "bus_width_bits", "memory_clock_max_mhz", "sm_clock_mhz"),
    *("sm_clock_max_mhz", "utilization_percent", "persistence", "compute_mode", "sram_threshold_exceeded"),
    *("recovery_action", "temperature_c", "temperature_margin_c", "slowdown_c", "power_w", "power_limit_w"),
    *("power_default_w", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "inforom_valid"),
)


def _reading(raw: Mapping[str, Any], name: str, shape: Any) -> Any:
    """Return a reading in its shape, None where the GPU does not offer it; raise Unreadable where it was refused."""
    if name not in raw:
        raise Unreadable(
            f"NVML gave no {name}" + (f": {NvmlError.of('', raw['error']).name}" if raw.get("error") else "")
        )
    value = raw[name]
    if isinstance(value, dict) and "error" in value:
        raise Unreadable(f"NVML's {name}: {NvmlError.of('', value['error']).name}")
    return None if value is None else shape(value)


def on_or_off(mode: bool) -> str:
    """Return the word for a mode."""
    return "on" if mode else "off"


def _two(value: Any) -> tuple[Any, Any]:
    first, second = value
    return first, second


def _processes(raw: Any) -> tuple[Process, ...]:
    return tuple(Process(p["pid"], p["kind"], p["comm"], p["cmdline"], p["memory_mib"]) for p in raw)
