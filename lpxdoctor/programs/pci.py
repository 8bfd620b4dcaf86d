"""Print what sysfs holds of every NVIDIA device and of the bridges above it, as JSON: {address: fields}.

above are the addresses of the bridges from the root port down; config is the first 64 bytes as hexadecimal digits; acs
the ACS control word of a bridge, null where it has none; link the width and speed files; the rest is text. What could
not be read is null, and unread says why, field by field.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NVIDIA = "0x10de"
_BRIDGE = "0x0604"  # the start of a PCI bridge's class; the root ports of NVIDIA's own CPUs are NVIDIA devices too
_ACS = 0x000D  # PCI Express extended capability id
_LINK = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")


def devices(root: Path) -> dict[str, Any]:
    """Return {address: fields} of the NVIDIA devices below a sysfs directory of devices, and of what is above them."""
    found: dict[str, Any] = {}
    for device in sorted(root.iterdir()):
        if _line(device / "vendor", {}) != _NVIDIA:
            continue
        above = [part for part in device.resolve().parent.parts if _ADDRESS.fullmatch(part)]
        found[device.name] = _fields(device, above)
        for depth, address in enumerate(above):
            if address not in found:
                found[address] = _fields(root / address, above[:depth])
    return found


def _fields(device: Path, above: list[str]) -> dict[str, Any]:
    unread: dict[str, str] = {}
    bridge = (_line(device / "class", {}) or "").startswith(_BRIDGE)
    group = device / "iommu_group"
    return {
        "uevent": _line(device / "uevent", unread),
        "above": above,
        "config": _config(device / "config", unread),
        "acs": _acs(device / "config", unread) if bridge else None,
        "link": {name: _line(device / name, {}) for name in _LINK},
        "numa_node": _line(device / "numa_node", {}),
        "iommu_group": group.resolve().name if group.exists() else None,
        "iommu_type": _line(group / "type", {}) if group.exists() else None,
        "unread": unread,
    }


def _line(path: Path, unread: dict[str, str]) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="backslashreplace").strip()
    except OSError as error:
        unread[path.name] = error.strerror or str(error)
        return None


def _config(path: Path, unread: dict[str, str]) -> str | None:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(64).hex()
    except OSError as error:
        unread["config"] = error.strerror or str(error)
        return None


def _acs(path: Path, unread: dict[str, str]) -> int | None:
    """Walk the extended capabilities, a word at a time: each word is a transaction on the bus."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        unread["acs"] = error.strerror or str(error)
        return None
    try:
        offset = 0x100
        for _ in range(96):  # more do not fit; a broken device may point in a circle
            word = os.pread(file, 4, offset)
            if len(word) < 4:
                if offset == 0x100 and os.fstat(file).st_size > 256:
                    unread["acs"] = "only root may read past the first 64 bytes of the configuration space"
                return None
            header = struct.unpack("<I", word)[0]
            if header & 0xFFFF == _ACS:
                return int(struct.unpack("<H", os.pread(file, 2, offset + 6))[0])
            offset = header >> 20
            if header in (0, 0xFFFFFFFF) or offset < 0x100:
                return None
    except OSError as error:
        unread["acs"] = error.strerror or str(error)
    finally:
        os.close(file)
    return None


if __name__ == "__main__":
    json.dump(devices(Path(sys.argv[1] if len(sys.argv) > 1 else "/sys/bus/pci/devices")), sys.stdout)
