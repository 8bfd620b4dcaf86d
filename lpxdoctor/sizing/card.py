"""A GPU's name, or what NVML said of a host's GPUs, in; what sizing needs of a GPU out."""

import difflib
import re
from dataclasses import dataclass
from typing import cast

from lpxdoctor import knowledge
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.gpu import Gpu as SeenGpu
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.knowledge.rows import Gpu as Row

MIB = 1 << 20
GIB = 1 << 30
# What the driver keeps of the total that NVML tells, so that CUDA never sees it: an estimate, fitted to totals in
# public logs of vLLM and PyTorch: 15.51 GiB of 15.92 (RTX 5080), 22.06 of 22.49 (L4, A10G), 23.52 of 23.99 (RTX 4090),
# 31.36 of 31.84 (RTX 5090), 39.49 of 40.0 (A100), 94.97 of 95.59 (RTX PRO 6000), 139.81 of 140.40 (H200).
_DRIVER_BYTES, _DRIVER_SHARE = 0.40 * GIB, 0.0017
_ECC_SHARE = 15 / 16  # GDDR has no memory of its own for ECC and gives up a sixteenth
_SHARED_MEMORY = ("soc", "jetson")
_SHOWN_SHARE = 0.02
_NEAR = 5
_SEVERAL = re.compile(r"(\d{1,2})\s*[xX*\u00d7]\s*(\S.{,60})")  # "2x NVIDIA L4"
_ADVICE = 'Plan for a GPU by its name: --gpu "NVIDIA L4"'


@dataclass(frozen=True, kw_only=True)
class Card:
    """One GPU as the plan sees it.

    Attributes:
        name: NVML's.
        capability: its compute capability, "8.9".
        native: number formats that its matrix units compute; empty where the capability is not known.
        total_bytes: its memory as CUDA tells it, of which the engine's memory utilization is a share.
        free_bytes: free of it now, None where nobody looked.
        holders: who holds the rest, for people.
        bytes_per_s: its memory's peak bandwidth, None where nothing tells.
        bandwidth_from: how that is known.
        memory_from: likewise.
        index: which GPU of the host, None for one by name.
        alike: how many such GPUs there are.
    """

    name: str
    capability: str
    native: tuple[str, ...]
    total_bytes: int
    free_bytes: int | None = None
    holders: tuple[str, ...] = ()
    bytes_per_s: int | None = None
    bandwidth_from: str = ""
    memory_from: str = ""
    index: int | None = None
    alike: int = 1

    @property
    def capability_number(self) -> tuple[int, int]:
        """The compute capability to compare, (0, 0) where it is not known."""
        major, _, minor = self.capability.partition(".")
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def told(size: int) -> str:
    """Return bytes as people read them: GiB, and MiB below one."""
    return f"{size / GIB:.1f} GiB" if abs(size) >= GIB else f"{size / MIB:.0f} MiB"


def by_name(name: str) -> Card:
    """Return a GPU as sold: "NVIDIA L4", "L4", "RTX 4060 Ti 16GB".

    Raises:
        UsageError: for a name that the table lacks, with those that are near; or that several GPUs share.
    """
    rows = knowledge.load().gpus
    if several := _SEVERAL.fullmatch(name.strip()):
        raise UsageError(f'--gpu names one GPU: type --gpu "{several[2]}" --tensor-parallel {several[1]}')
    wanted = _plain(name)
    found = [row for row in rows if wanted in (_plain(row.name), _plain(f"{row.name} {row.memory_gb}GB"))]
    if len(found) > 1:
        choices = " or ".join(f'"{row.name} {row.memory_gb}GB"' for row in found)
        raise UsageError(f"There are several GPUs of the name {name}. Type: --gpu {choices}")
    if not found:
        plain = {_plain(row.name): row.name for row in rows}
        near = [plain[key] for key in plain if wanted and wanted in key][:_NEAR]
        near = near or [plain[key] for key in difflib.get_close_matches(wanted, plain, _NEAR, 0.4)]
        raise UsageError(f"No GPU of the name {name[:60]!r} is in the table. Near it: {', '.join(near) or 'none'}")
    return _of_row(found[0])


def _plain(name: str) -> str:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return " ".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


def _of_row(row: Row) -> Card:
    size = row.memory_mib * MIB if row.memory_mib else _size(row)
    return Card(
        name=row.name,
        capability=row.cc,
        native=_native(row.cc),
        total_bytes=_cuda_total(size),
        bytes_per_s=row.bandwidth_gbs * 10**9,
        bandwidth_from="data sheet",
        memory_from="typical of the model, less what the driver keeps",
    )


def _size(row: Row) -> int:
    share = _ECC_SHARE if row.ecc is True and row.memory_type.startswith("GDDR") else 1
    return int(row.memory_gb * GIB * share)


def _cuda_total(nvml_bytes: int) -> int:
    return int(nvml_bytes * (1 - _DRIVER_SHARE) - _DRIVER_BYTES)


def _native(capability: str) -> tuple[str, ...]:
    row = knowledge.load().capability(capability)
    return row.native if row else ()


def of_host(gpus: Gpus, count: int) -> Card:
    """Return the emptiest GPU of a host; for several, the fullest of the emptiest of one kind: all must hold alike.

    Args:
        gpus: what NVML said.
        count: how many GPUs share the model.

    Raises:
        SetupError: where the host has no such GPUs, or NVML cannot say.
    """
    try:
        working = gpus.working
        free = {gpu.index: _free_mib(gpu) for gpu in working}
        kinds = {gpu.index: gpu.name for gpu in working}
    except Unreadable as reason:
        raise SetupError(f"The GPUs of this host cannot be read: {reason}. {_ADVICE}") from None
    if not working:
        raise SetupError(f"No GPU of this host answers. {_ADVICE}")
    whole = [gpu for gpu in working if not _divided(gpu)]
    if not whole:
        names = ", ".join(gpu.subject for gpu in working)
        raise SetupError(f"{names}: divided by MIG, and a slice is not planned for. {_ADVICE}")
    groups = [[gpu for gpu in whole if kinds[gpu.index] == kind] for kind in dict.fromkeys(kinds.values())]
    enough = [sorted(group, key=lambda gpu: -free[gpu.index]) for group in groups if len(group) >= count]
    if not enough:
        most = max(map(len, groups))
        raise SetupError(f"The model is to be shared by {count} GPUs of one kind, and this host has {most}. {_ADVICE}")
    best = max(enough, key=lambda group: free[group[count - 1].index])
    return _seen(best[count - 1], alike=len(best))


def _free_mib(gpu: SeenGpu) -> int:
    """Return what is free of a GPU's memory; 0 where its memory is the CPU's, of which NVML tells nothing useful."""
    if _shared_memory(gpu.name):
        return 0
    free = cast("int | None", gpu.memory_free_mib)
    if free is None:  # NVML offers no such reading of it
        raise Unreadable(f"NVML does not tell the memory of {gpu.subject}")
    return free


def _shared_memory(name: str) -> bool:
    row = knowledge.load().gpu_by_name(name)
    return row is not None and row.kind in _SHARED_MEMORY


def _divided(gpu: SeenGpu) -> bool:
    try:
        return bool(gpu.mig and gpu.mig[0])
    except Unreadable:
        return False


def _seen(gpu: SeenGpu, *, alike: int) -> Card:
    row = knowledge.load().gpu_by_name(gpu.name)
    if row is not None and row.kind in _SHARED_MEMORY:
        return _of_row(row)
    try:
        capability, total, free = gpu.compute_capability, gpu.memory_total_mib * MIB, gpu.memory_free_mib * MIB
        others = gpu.others
    except Unreadable as reason:
        raise SetupError(f"The memory of {gpu.subject} cannot be read: {reason}. {_ADVICE}") from None
    cuda, memory_from = _cuda_total(total), "NVML's total, less what the driver keeps"
    shown = free + sum(process.memory_mib or 0 for process in others) * MIB
    if abs(shown - cuda) < _SHOWN_SHARE * total:  # else a process holds memory that this container does not see
        cuda, memory_from = shown, "free now, and what its processes hold"
    bytes_per_s, bandwidth_from = _bandwidth(gpu, row)
    return Card(
        name=gpu.name,
        capability=capability,
        native=_native(capability),
        total_bytes=max(cuda, free),
        free_bytes=free,
        holders=tuple(map(str, others)),
        bytes_per_s=bytes_per_s,
        bandwidth_from=bandwidth_from,
        memory_from=memory_from,
        index=gpu.index,
        alike=alike,
    )


def bandwidth(clock_mhz: int, width_bits: int) -> tuple[int, str]:
    """Return bytes/s and how they come about: NVML counts the clock of every kind of memory at two transfers a turn."""
    return clock_mhz * 10**6 * 2 * width_bits // 8, f"{clock_mhz} MHz x 2 x {width_bits} bit / 8, by NVML"


def _bandwidth(gpu: SeenGpu, row: Row | None) -> tuple[int | None, str]:
    try:
        clock, width = gpu.memory_clock_max_mhz, gpu.bus_width_bits
    except Unreadable:
        clock, width = None, None
    if clock and width:
        return bandwidth(clock, width)
    return (row.bandwidth_gbs * 10**9, "data sheet") if row else (None, "")
