"""The rows of the tables in this directory as types; each says where it is from, of when, and how sure it is."""

import datetime
from typing import Literal

import msgspec

Certainty = Literal["high", "medium", "low"]
Kind = Literal["lts", "production", "new-feature"]
GpuClass = Literal["data-center", "workstation", "geforce", "jetson", "soc"]
OpenModules = Literal["unsupported", "supported", "required"]
NumberFormat = Literal["fp16", "bf16", "int8", "int4", "fp8", "fp4"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every row has. Only high and medium certainty may carry a failure; low is for advice."""

    source: str
    date: datetime.date
    certainty: Certainty
    note: str = ""

    @property
    def sure(self) -> bool:
        """Whether a failure may rest on it."""
        return self.certainty != "low"


class Toolkit(Row, frozen=True, kw_only=True):
    """A CUDA toolkit and the lowest Linux driver that supports all of it."""

    version: str
    driver: str


class Floor(Row, frozen=True, kw_only=True):
    """The lowest driver that runs programs of any toolkit of a major version."""

    major: int
    driver: str


class Forward(Row, frozen=True, kw_only=True):
    """The host driver branches over which cuda-compat of a CUDA version may be put."""

    cuda: str
    branches: tuple[int, ...]


class CudaError(Row, frozen=True, kw_only=True):
    """A code of the CUDA interfaces: its name, what it says about the host, and what to do, "" where nothing fits."""

    code: int
    name: str
    meaning: str
    do: str = ""


class Branch(Row, frozen=True, kw_only=True):
    """A driver branch: the CUDA version that it carries, and the last month of its support ("" where unpublished)."""

    branch: int
    kind: Kind
    cuda: str
    ended: bool
    eol: str = ""


class OpenModuleRules(Row, frozen=True, kw_only=True):
    """From which branches the open kernel modules exist, are the default, and are the only ones."""

    first_branch: int
    default_from: int
    only_from: int


class Code(Row, frozen=True, kw_only=True):
    """An exit status of nvidia-smi."""

    code: int
    meaning: str


class NvmlCode(Row, frozen=True, kw_only=True):
    """A return code of NVML, its name without NVML_ERROR_."""

    code: int
    name: str
    meaning: str
    do: str = ""


class Recovery(Row, frozen=True, kw_only=True):
    """What the driver asks for to get a GPU back: NVML's value, the text of Xid 154, and what to do."""

    value: int
    text: str
    do: str


class Capability(Row, frozen=True, kw_only=True):
    """A compute capability: what computes natively on it, and which toolkits and driver branches support it."""

    cc: str
    arch: str
    first_cuda: str
    open: OpenModules
    native: tuple[NumberFormat, ...]
    last_cuda: str | None = None
    first_branch: int | None = None
    last_branch: int | None = None


class Gpu(Row, frozen=True, kw_only=True, rename={"kind": "class"}):
    """A GPU as sold: its NVML name, PCI device ids in hexadecimal, and what its memory holds and moves."""

    name: str
    pci: tuple[str, ...]
    cc: str
    kind: GpuClass
    memory_gb: int
    memory_type: str
    bus_bits: int
    bandwidth_gbs: int
    tdp_w: int
    memory_mib: int | None = None
    nvlink: Literal["none", "bridge", "board"] = "none"
    c2c: bool = False
    open: OpenModules | None = None
    mig: bool = False
    ecc: bool | Literal["optional"] = False


class XidAction(Row, frozen=True, kw_only=True):
    """What to do for an action word of the Xid table."""

    action: str
    do: str


class Xid(Row, frozen=True, kw_only=True):
    """A driver error by number; its action word is one of the actions table."""

    code: int
    name: str
    meaning: str
    group: Literal["program", "driver", "firmware", "hardware", "memory", "bus", "nvlink", "power", "notice"]
    severity: Literal["info", "warning", "error", "critical"]
    action: str
    also: str = ""
