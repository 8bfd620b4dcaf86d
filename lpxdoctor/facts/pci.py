"""What sysfs says of the devices on the PCI bus in, typed devices and the bridges above NVIDIA's out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.fact import Fact, known

NVIDIA = 0x10DE
_GPU = (0x0300, 0x0302)  # VGA and 3D controllers
_BRIDGE_OTHER = 0x0680  # what an NVSwitch is


@dataclass(frozen=True, kw_only=True)
class PciDevice(Fact):
    """One function. What needs more than the kernel's own list is Unreadable where that could not be read."""

    address: str  # "0000:65:00.0"
    vendor: int
    device: int
    class_code: int  # 24 bits: class, subclass, interface
    driver: str  # "" where none is bound
    gone: bool = False  # its configuration space reads as all ones: it no longer answers
    above: tuple[str, ...] = ()  # addresses of the bridges from the root port down to it
    width: int | None = None  # lanes in use; None where it has no PCI Express link of its own, as in many guests
    width_max: int | None = None
    numa_node: int | None = None  # None where the firmware names none
    iommu_group: str = ""  # "" where no IOMMU is on
    iommu_type: str = ""  # "identity" passes addresses through; "DMA" and "DMA-FQ" translate them

    @property
    def is_gpu(self) -> bool:
        """Whether it is an NVIDIA GPU; its sound and USB functions are not."""
        return self.vendor == NVIDIA and self.class_code >> 8 in _GPU

    @property
    def is_nvswitch(self) -> bool:
        """Whether it is an NVSwitch."""
        return self.vendor == NVIDIA and self.class_code >> 8 == _BRIDGE_OTHER

    @property
    def ids(self) -> str:
        """Vendor and device as lspci prints them: "10de:2335"."""
        return f"{self.vendor:04x}:{self.device:04x}"


@dataclass(frozen=True, kw_only=True)
class Bridge(Fact):
    """A bridge above an NVIDIA device."""

    address: str
    acs: int | None = None  # the ACS control word; None where it has no such capability
    width: int | None = None
    width_max: int | None = None


def devices(uevents: Mapping[str, str | None], detail: Mapping[str, Any] | Unreadable) -> tuple[PciDevice, ...]:
    """Return all devices.

    Args:
        uevents: {"/sys/bus/pci/devices/<address>/uevent": text}.
        detail: what programs/pci.py printed, or why there is nothing.
    """
    found = []
    for path, text in uevents.items():
        fields = assignments(text or "")
        vendor, _, device = fields.get("PCI_ID", "").partition(":")
        address = fields.get("PCI_SLOT_NAME", path.rpartition("/devices/")[2].partition("/")[0])
        if not device:
            raise Unreadable(f"{path} names no PCI_ID")
        more = _detail_of(address, detail) if int(vendor, 16) == NVIDIA else {}
        found.append(
            PciDevice(
                address=address,
                vendor=int(vendor, 16),
                device=int(device, 16),
                class_code=int(fields.get("PCI_CLASS", "0"), 16),
                driver=fields.get("DRIVER", ""),
                **more,
            )
        )
    return tuple(found)


def _detail_of(address: str, detail: Mapping[str, Any] | Unreadable) -> dict[str, Any]:
    """Return the fields of a device that the program read, each Unreadable where it was not."""
    names = ("gone", "above", "width", "width_max", "numa_node", "iommu_group", "iommu_type")
    if isinstance(detail, Unreadable):
        return dict.fromkeys(names, detail)
    raw = detail.get(address)
    if raw is None:
        return dict.fromkeys(names, Unreadable(f"{address} came to the bus while it was read"))
    return {
        "gone": known(lambda: _gone(raw)),
        "above": known(lambda: tuple(raw["above"])),
        "width": known(lambda: _lanes(raw["link"]["current_link_width"])),
        "width_max": known(lambda: _lanes(raw["link"]["max_link_width"])),
        "numa_node": known(lambda: _numa_node(raw["numa_node"])),
        "iommu_group": raw.get("iommu_group") or "",
        "iommu_type": raw.get("iommu_type") or "",
    }


def bridges(detail: Mapping[str, Any]) -> tuple[Bridge, ...]:
    """Return the bridges above NVIDIA devices, from what programs/pci.py printed."""
    above = dict.fromkeys(address for raw in detail.values() for address in raw["above"])
    return tuple(_bridge(address, detail[address]) for address in above)


def _bridge(address: str, raw: Mapping[str, Any]) -> Bridge:
    return Bridge(
        address=address,
        acs=known(lambda: _acs(raw)),
        width=known(lambda: _lanes(raw["link"]["current_link_width"])),
        width_max=known(lambda: _lanes(raw["link"]["max_link_width"])),
    )


def _gone(raw: Mapping[str, Any]) -> bool:
    """A function that left the bus reads as ones, vendor and all; sysfs still shows what was there at boot."""
    config = raw["config"]
    if not config:
        raise Unreadable(f"its configuration space: {raw['unread'].get('config', 'nothing was read')}")
    return re.fullmatch("f{8,}", config) is not None


def _acs(raw: Mapping[str, Any]) -> int | None:
    if reason := raw["unread"].get("acs"):
        raise Unreadable(f"ACS: {reason}")
    return None if raw["acs"] is None else int(raw["acs"])


def _lanes(text: str | None) -> int | None:
    """Return a link's width; the kernel writes 0 where there is no link, and 255 or 63 where the device is gone."""
    lanes = int(text or 0)
    return lanes if 0 < lanes <= 32 else None


def _numa_node(text: str | None) -> int | None:
    return None if text in (None, "", "-1") else int(text)
