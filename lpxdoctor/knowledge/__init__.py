"""Tables of what goes with what, with source and date per row, in; typed look-ups out.

What is newer than the tables is unknown: every look-up then returns None, and nothing is guessed.
"""

from functools import cached_property, lru_cache
from typing import Any, TypeVar

import msgspec
from packaging.version import InvalidVersion, Version

from lpxdoctor import bundled
from lpxdoctor.knowledge.rows import (
    Branch,
    Capability,
    Code,
    CudaError,
    Floor,
    Forward,
    Gpu,
    GpuClass,
    NvmlCode,
    OpenModuleRules,
    OpenModules,
    Recovery,
    Row,
    Toolkit,
    Xid,
    XidAction,
)

R = TypeVar("R", bound=Row)


class Knowledge:
    """All tables. A file is read when one of its tables is first asked for, and each row is checked then."""

    # --- CUDA -------------------------------------------------------------------------------------------------

    @cached_property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """CUDA toolkits, oldest first."""
        return _table("cuda", "toolkits", Toolkit)

    @cached_property
    def floors(self) -> tuple[Floor, ...]:
        """Minor-version compatibility, one row a major version."""
        return _table("cuda", "floors", Floor)

    @cached_property
    def forwards(self) -> tuple[Forward, ...]:
        """Forward compatibility, one row a CUDA version."""
        return _table("cuda", "forward", Forward)

    @cached_property
    def forward_classes(self) -> tuple[GpuClass, ...]:
        """The classes of GPUs that forward compatibility is offered for."""
        return tuple(tables_of("cuda")["forward"]["classes"])

    @cached_property
    def cuda_errors(self) -> tuple[CudaError, ...]:
        """Codes of the CUDA interfaces."""
        return _table("cuda", "errors", CudaError)

    def toolkit(self, cuda: str) -> Toolkit | None:
        """Return the toolkit of a version: that very one for "13.0.2", the first of its line for "13.0"."""
        wanted = cuda.split(".")
        return next((row for row in self.toolkits if row.version.split(".")[: len(wanted)] == wanted), None)

    def floor(self, cuda: str) -> Floor | None:
        """Return the lowest driver for any toolkit of this one's major version."""
        return next((row for row in self.floors if str(row.major) == _major(cuda)), None)

    def forward(self, cuda: str) -> Forward | None:
        """Return the host branches that cuda-compat of a CUDA version ("13.0", "13.0.2") may be put over."""
        return next((row for row in self.forwards if row.cuda.split(".") == cuda.split(".")[:2]), None)

    def cuda_error(self, code: int) -> CudaError | None:
        """Return what a CUDA error code means."""
        return next((row for row in self.cuda_errors if row.code == code), None)

    # --- drivers ----------------------------------------------------------------------------------------------

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """Driver branches, oldest first."""
        return _table("driver", "branches", Branch)

    @cached_property
    def open_modules(self) -> OpenModuleRules:
        """The rules of the open kernel modules."""
        return _table("driver", "open_modules", OpenModuleRules)[0]

    @cached_property
    def nvml_codes(self) -> tuple[NvmlCode, ...]:
        """Return codes of NVML."""
        return _table("driver", "nvml", NvmlCode)

    @cached_property
    def nvidia_smi_codes(self) -> tuple[Code, ...]:
        """Exit statuses of nvidia-smi."""
        return _table("driver", "nvidia_smi", Code)

    @cached_property
    def recoveries(self) -> tuple[Recovery, ...]:
        """What a driver may ask for to get a GPU back."""
        return _table("driver", "recovery", Recovery)

    def branch(self, driver: str) -> Branch | None:
        """Return the branch of a driver version ("580.95.05") or branch number ("580")."""
        return next((row for row in self.branches if str(row.branch) == _major(driver)), None)

    def newer_than_known(self, driver: str) -> bool:
        """Whether a driver is of a branch newer than the newest in the table."""
        number = _major(driver)
        return number.isdigit() and int(number) > self.branches[-1].branch

    def nvml_code(self, code: int) -> NvmlCode | None:
        """Return what a return code of NVML means."""
        return next((row for row in self.nvml_codes if row.code == code), None)

    def nvidia_smi_code(self, code: int) -> Code | None:
        """Return what an exit status of nvidia-smi means."""
        return next((row for row in self.nvidia_smi_codes if row.code == code), None)

    def recovery(self, value: int) -> Recovery | None:
        """Return what NVML's recovery action of this value asks for."""
        return next((row for row in self.recoveries if row.value == value), None)

    # --- GPUs -------------------------------------------------------------------------------------------------

    @cached_property
    def capabilities(self) -> tuple[Capability, ...]:
        """Compute capabilities."""
        return _table("gpu", "capabilities", Capability)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs as sold."""
        return _table("gpu", "gpus", Gpu)

    def capability(self, cc: str) -> Capability | None:
        """Return what is known of a compute capability ("9.0")."""
        return next((row for row in self.capabilities if row.cc == cc), None)

    def gpu_by_pci(self, device_id: int) -> Gpu | None:
        """Return the GPU of a PCI device id; of boards that share one, the first."""
        return next((row for row in self.gpus if f"{device_id:04X}" in row.pci), None)

    def gpu_by_name(self, name: str) -> Gpu | None:
        """Return the GPU of an NVML name; of models that share it, which differ in memory alone, the first."""
        return next((row for row in self.gpus if row.name == name), None)

    def open_modules_of(self, gpu: Gpu) -> OpenModules | None:
        """Return whether the open kernel modules can or must drive a GPU."""
        capability = self.capability(gpu.cc)
        return gpu.open or (capability.open if capability else None)

    # --- Xid --------------------------------------------------------------------------------------------------

    @cached_property
    def xids(self) -> tuple[Xid, ...]:
        """Driver errors by number."""
        return _table("xid", "codes", Xid)

    @cached_property
    def xid_actions(self) -> dict[str, str]:
        """{action word of the Xid table: what to do}."""
        return {row.action: row.do for row in _table("xid", "actions", XidAction)}

    def xid(self, code: int) -> Xid | None:
        """Return what an Xid means."""
        return next((row for row in self.xids if row.code == code), None)


@lru_cache(maxsize=1)
def load() -> Knowledge:
    """Return the knowledge that came with this version."""
    return Knowledge()


def version(text: str) -> Version | None:
    """Return a driver's or a toolkit's version, None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _major(text: str) -> str:
    return text.partition(".")[0]


@lru_cache(maxsize=8)
def tables_of(name: str) -> dict[str, Any]:
    """Return one file's tables as they stand there."""
    return msgspec.toml.decode((bundled.KNOWLEDGE / f"{name}.toml").read_bytes(), type=dict[str, Any])


def _table(file: str, name: str, row: type[R]) -> tuple[R, ...]:
    """Return a table's rows, each with the table's source, date and certainty where it has none of its own."""
    table = tables_of(file)[name]
    shared = {key: table[key] for key in ("source", "date", "certainty")}
    return tuple(msgspec.convert({**shared, **values}, row) for values in table["rows"])
