"""The PCI program reads a tree laid out as sysfs lays out its own, and this machine's."""

import json
import subprocess
import sys
from pathlib import Path

from lpxdoctor.programs import pci

HEADER = bytes.fromhex("de103523") + bytes(60)


def device(root: Path, place: str, vendor: str, class_: str, config: bytes) -> Path:
    """Make a device below a tree and the link to it, and return its directory."""
    directory = root / "devices" / place
    directory.mkdir(parents=True)
    (directory / "vendor").write_text(vendor + "\n")
    (directory / "class").write_text(class_ + "\n")
    (directory / "uevent").write_text("PCI_ID=10DE:2335\n")
    (directory / "config").write_bytes(config)
    for name, value in (("current_link_width", "8"), ("max_link_width", "16"), ("numa_node", "-1")):
        (directory / name).write_text(value + "\n")
    bus = root / "bus"
    bus.mkdir(exist_ok=True)
    (bus / directory.name).symlink_to(directory)
    return directory


def space(acs: int) -> bytes:
    """Return a configuration space of 4096 bytes whose second extended capability is ACS."""
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 0x140 << 20).to_bytes(4, "little")
    data[0x140:0x144] = (0x000D | 0 << 20).to_bytes(4, "little")
    data[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(data)


def test_a_gpu_below_a_switch_is_read_with_its_bridges(tmp_path: Path) -> None:
    device(tmp_path, "pci0000:00/0000:00:01.0", "0x8086", "0x060400", space(0x1D))
    device(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0", "0x10b5", "0x060400", space(0))
    gpu = device(tmp_path, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0x10de", "0x030200", HEADER)
    device(tmp_path, "pci0000:00/0000:00:1f.0", "0x8086", "0x060100", HEADER)
    groups = tmp_path / "groups" / "14"
    groups.mkdir(parents=True)
    (groups / "type").write_text("DMA-FQ\n")
    (gpu / "iommu_group").symlink_to(groups)

    found = pci.devices(tmp_path / "bus")
    assert sorted(found) == ["0000:00:01.0", "0000:01:00.0", "0000:02:00.0"]
    one = found["0000:02:00.0"]
    assert one["above"] == ["0000:00:01.0", "0000:01:00.0"]
    assert one["config"] == HEADER.hex()
    assert one["link"]["current_link_width"] == "8"
    assert (one["iommu_group"], one["iommu_type"]) == ("14", "DMA-FQ")
    assert (one["acs"], one["unread"]) == (None, {})
    assert (found["0000:00:01.0"]["acs"], found["0000:01:00.0"]["acs"]) == (0x1D, 0)


def test_an_nvidia_bridge_above_a_gpu_is_read_as_a_bridge(tmp_path: Path) -> None:
    device(tmp_path, "pci0009:00/0009:00:00.0", "0x10de", "0x060400", space(0x1D))  # as on Grace
    device(tmp_path, "pci0009:00/0009:00:00.0/0009:01:00.0", "0x10de", "0x030200", HEADER)
    assert pci.devices(tmp_path / "bus")["0009:00:00.0"]["acs"] == 0x1D


def test_capabilities_that_point_in_a_circle_end(tmp_path: Path) -> None:
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")
    device(tmp_path, "pci0000:00/0000:00:01.0", "0x10de", "0x060400", bytes(data))
    assert pci.devices(tmp_path / "bus")["0000:00:01.0"]["acs"] is None


def test_a_space_that_is_all_ones_has_no_capability(tmp_path: Path) -> None:
    device(tmp_path, "pci0000:00/0000:00:01.0", "0x10de", "0x060400", b"\xff" * 4096)
    one = pci.devices(tmp_path / "bus")["0000:00:01.0"]
    assert (one["acs"], one["config"]) == (None, "ff" * 64)


def test_this_machines_own_bus_is_read() -> None:
    done = subprocess.run([sys.executable, pci.__file__], capture_output=True, text=True, check=True)
    nvidia = [path.parent.name for path in Path("/sys/bus/pci/devices").glob("*/vendor") if "10de" in path.read_text()]
    assert set(nvidia) <= set(json.loads(done.stdout))
