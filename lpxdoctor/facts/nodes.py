"""/proc/devices, /dev/nvidia* and the driver's own list of GPUs in; device nodes with what they should be out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONTROL_MINOR = 255  # of /dev/nvidiactl, in every driver


@dataclass(frozen=True)
class Node:
    """A device node."""

    path: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Adapter:
    """A GPU as the kernel module lists it."""

    address: str
    model: str
    minor: int
    firmware: str  # version of its GSP firmware, "" where it runs without
    excluded: bool  # by the module's option NVreg_ExcludedGpus


def majors(text: str) -> dict[str, int]:
    """Return {name: major} of the character devices in /proc/devices."""
    if "Character devices:" not in text:
        raise ValueError("/proc/devices lists no character devices")
    section = text.partition("Character devices:")[2].partition("Block devices:")[0]
    return {name: int(major) for major, name in re.findall(r"^\s*(\d+)\s+(\S+)\s*$", section, flags=re.MULTILINE)}


def nodes(listing: Mapping[str, Mapping[str, Any]]) -> tuple[Node, ...]:
    """Return the character devices of a listing."""
    return tuple(
        Node(path, e["major"], e["minor"], e["mode"], e["uid"], e["gid"])
        for path, e in listing.items()
        if e["kind"] == "char"
    )


def adapters(files: Mapping[str, str | None]) -> tuple[Adapter, ...]:
    """Return the GPUs in {"/proc/driver/nvidia/gpus/<address>/information": text}."""
    found = []
    for path, text in files.items():
        fields = {
            key.strip(): value.strip() for key, _, value in (line.partition(":") for line in (text or "").splitlines())
        }
        firmware = fields.get("GPU Firmware", "N/A")
        found.append(
            Adapter(
                address=path.split("/")[-2],
                model=fields.get("Model", ""),
                minor=int(fields["Device Minor"]),
                firmware="" if firmware == "N/A" else firmware,
                excluded=fields.get("GPU Excluded") == "Yes",
            )
        )
    return tuple(found)


def expected(known: Mapping[str, int], gpus: tuple[Adapter, ...]) -> dict[str, tuple[int, int]]:
    """Return {path: (major, minor)} of the nodes that this driver needs, as far as its numbers are known."""
    main = next((known[name] for name in ("nvidia", "nvidia-frontend") if name in known), None)
    wanted: dict[str, tuple[int, int]] = {}
    if main is not None:
        wanted["/dev/nvidiactl"] = (known.get("nvidiactl", main), _CONTROL_MINOR)
        wanted |= {f"/dev/nvidia{gpu.minor}": (main, gpu.minor) for gpu in gpus if not gpu.excluded}
    if "nvidia-uvm" in known:
        wanted |= {"/dev/nvidia-uvm": (known["nvidia-uvm"], 0), "/dev/nvidia-uvm-tools": (known["nvidia-uvm"], 1)}
    return wanted
