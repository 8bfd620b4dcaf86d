"""What trying CUDA on this host brought in, whether it works and what is in its way out."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lpxdoctor import knowledge
from lpxdoctor.evidence import Evidence, Probe, Program, Unreadable
from lpxdoctor.facts.fact import Fact, known

CUDA = Program("cuda", timeout_s=27.0)  # it ends by itself before

HUNG, CRASHED, NO_LIBRARY = -1, -2, -3
OUT_OF_MEMORY = 2
DEVICE_UNAVAILABLE = 46


@dataclass(frozen=True)
class CudaError:
    """A call that failed: CUDA's code and name for it; HUNG, CRASHED or NO_LIBRARY where CUDA gave none."""

    call: str
    code: int
    name: str

    @property
    def meaning(self) -> str:
        """What the code says about a host, "" where the tables do not tell."""
        row = knowledge.load().cuda_error(self.code)
        return row.meaning if row else ""

    @property
    def do(self) -> str:
        """What to do about it, "" where the tables do not tell."""
        row = knowledge.load().cuda_error(self.code)
        return row.do if row else ""

    def __str__(self) -> str:
        return f"{self.call}: {self.name}" + (f" ({self.code})" if self.code > 0 else "")


@dataclass(frozen=True)
class CudaDevice:
    """A GPU as CUDA sees it; without an error a kernel has computed on it."""

    uuid: str
    name: str
    compute_capability: str
    error: CudaError | None

    @property
    def fault(self) -> CudaError | None:
        """What is wrong with it; raises Unreadable where programs have left no memory to try it with."""
        if self.error and self.error.code == OUT_OF_MEMORY:
            raise Unreadable(f"{self.name} has no memory left for a trial of CUDA: {self.error}")
        return self.error


@dataclass(frozen=True, kw_only=True)
class Cuda(Fact):
    """CUDA tried on the host itself. Where that would have changed the host, error and devices say why it was not."""

    probes: ClassVar[tuple[Probe, ...]] = (CUDA,)

    library: str  # the file of libcuda that a program loads here, "" where it finds none
    error: CudaError | None  # what kept CUDA as a whole from starting
    devices: tuple[CudaDevice, ...]
    environment: Mapping[str, str]  # variables of this login that limit or redirect CUDA
    started: bool  # whether it was tried, came up and found GPUs; never Unreadable
    asked_on: datetime.date | None  # when the host was asked; None where the evidence does not say

    @property
    def library_version(self) -> str:
        """The driver version in the library's file name, "" where it has none."""
        found = re.search(r"libcuda\.so\.(\d+\.[\d.]+)$", self.library)
        return found[1] if found else ""

    @property
    def compat(self) -> bool:
        """Whether the library is one of cuda-compat, for forward compatibility."""
        return "/compat/" in self.library

    @classmethod
    def parse(cls, evidence: Evidence) -> "Cuda":
        """Return the facts that the answers hold; never raises."""
        return cls(
            library=known(lambda: str(_tried(evidence)["library"])),
            error=known(partial(_whole_error, evidence)),
            devices=known(lambda: tuple(_device(raw) for raw in _tried(evidence)["devices"])),
            environment=known(lambda: dict(evidence.value(CUDA)["environment"])),
            started=_started(evidence),
            asked_on=known(partial(_day, evidence.collected_at)),
        )


def _tried(evidence: Evidence) -> dict[str, Any]:
    answer: dict[str, Any] = evidence.value(CUDA)
    if answer.get("skipped"):
        raise Unreadable(f"CUDA was not tried: {answer['skipped']}")
    return answer


def _whole_error(evidence: Evidence) -> CudaError | None:
    answer = evidence.answers.get(CUDA.key)
    if answer and answer.failure == "timeout":  # the program itself hung: its interpreter, or a file system
        return CudaError("CUDA", HUNG, "hung")
    return _error(_tried(evidence)["error"])


def _error(raw: Mapping[str, Any] | None) -> CudaError | None:
    """Return an error with its name: the library's own, else the tables', else its number."""
    if raw is None:
        return None
    code = int(raw["code"])
    row = knowledge.load().cuda_error(code)
    return CudaError(str(raw["call"]), code, str(raw["name"]) or (row.name if row else f"error {code}"))


def _device(raw: Mapping[str, Any]) -> CudaDevice:
    named = {name: str(raw.get(name, "")) for name in ("uuid", "name", "compute_capability")}
    return CudaDevice(**named, error=_error(raw["error"]))


def _started(evidence: Evidence) -> bool:
    raw = evidence.answers.get(CUDA.key)
    answer = raw.value if raw and isinstance(raw.value, dict) else {}
    return not answer.get("error") and bool(answer.get("devices"))


def _day(stamp: str) -> datetime.date | None:
    return datetime.date.fromisoformat(stamp[:10]) if stamp else None
