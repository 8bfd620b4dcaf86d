"""The words in which NVML speaks of a GPU, as types."""

from dataclasses import dataclass
from enum import IntFlag

from lpxdoctor import knowledge

HUNG, CRASHED = -1, -2  # in the place of a code, of a call that never returned


class Reason(IntFlag):
    """Why a GPU's clocks are below the highest, as in nvml.h."""

    IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100


@dataclass(frozen=True)
class NvmlError:
    """A call of NVML that failed: its code and name, HUNG or CRASHED where it never returned."""

    call: str
    code: int
    name: str

    @classmethod
    def of(cls, call: str, code: int) -> "NvmlError":
        """Return the error of a code, with NVML's name for it."""
        row = knowledge.load().nvml_code(code)
        own = {HUNG: "HUNG", CRASHED: "CRASHED"}
        return cls(call, code, own.get(code) or (row.name if row else f"code {code}"))

    def __str__(self) -> str:
        return f"{self.call}: {self.name}"


@dataclass(frozen=True)
class Process:
    """A process that holds a GPU; name and command are "" where this host does not show it, as in a container."""

    pid: int
    kind: str  # "compute" or "graphics"
    name: str
    command: str
    memory_mib: int | None

    @property
    def ours(self) -> bool:
        """Whether it is our own trial of CUDA, which runs at the same time."""
        return "/probe/cuda.py" in self.command

    def __str__(self) -> str:
        size = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name or 'a process that is not shown here'} (pid {self.pid}{size})"


@dataclass(frozen=True)
class Remaps:
    """Memory rows that spare ones stand in for."""

    correctable: int
    uncorrectable: int
    pending: bool
    failure: bool


@dataclass(frozen=True)
class FabricState:
    """A GPU's place in the NVSwitch fabric, in the numbers of nvml.h."""

    NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = range(4)

    state: int
    status: int
    health: int
