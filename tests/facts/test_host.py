"""What a machine answers, real and made up, becomes its devices, its kind, its disks and its stuck processes."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor import bundled
from lpxdoctor.collect import collect
from lpxdoctor.evidence import Answer, Evidence, Unreadable, from_json
from lpxdoctor.facts import host as facts
from lpxdoctor.facts.assignments import assignments
from lpxdoctor.facts.host import Host, disks, read_only, virtualization
from lpxdoctor.facts.pci import bridges, devices
from tests.facts.given import command, evidence

DATA = Path(__file__).parent / "data"
ABSENT = Answer(failure="absent", reason="No such file or directory")


def recorded(name: str) -> Evidence:
    return from_json((DATA / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def here() -> Host:
    """Ask this very machine."""
    programs = {path.stem: path for path in bundled.PROGRAMS.glob("[!_]*.py")}
    return Host.parse(collect(Host.probes, programs))


def test_this_machine_is_what_python_says_it_is(here: Host) -> None:
    assert here.kernel == os.uname().release
    assert here.root == (os.getuid() == 0)
    assert here.os_name
    sizes = {disk.mount: disk.size_kib for disk in here.disks}
    root = os.statvfs("/")
    assert sizes["/"] == pytest.approx(root.f_blocks * root.f_frsize // 1024, rel=0.01)
    known = {path.name for path in Path("/sys/bus/pci/devices").glob("*")}
    assert {device.address for device in here.pci} == known


def test_a_real_guest_with_one_h200() -> None:
    host = Host.parse(recorded("h200-guest"))
    (gpu,) = host.gpus
    assert (gpu.address, gpu.ids, gpu.driver) == ("0000:00:06.0", "10de:2335", "nvidia")
    assert (gpu.width, gpu.width_max, gpu.gone) == (16, 16, False)
    assert host.nvswitches == ()
    assert host.virtualization == "container"  # it has the mark of one, and no program that would say more
    assert host.os_name == "Ubuntu 24.04.3 LTS"
    assert host.stuck == ()
    assert host.read_only == ()


def test_a_real_guest_without_a_gpu() -> None:
    host = Host.parse(recorded("no-gpu-guest"))
    assert host.gpus == ()
    assert len(host.pci) == 6
    assert host.bridges == ()
    assert host.clocksource == "tsc"
    assert host.governor == ""


def pci_of(address: str, **changes: Any) -> dict[str, Any]:
    raw = {
        "above": ["0000:00:01.0"],
        "config": "de103523",
        "acs": None,
        "link": {"current_link_width": "16", "max_link_width": "16"},
        "numa_node": "1",
        "iommu_group": "12",
        "iommu_type": "DMA-FQ",
        "unread": {},
    }
    bridge = {**raw, "above": [], "acs": 0x1D, "iommu_type": None}
    return {address: {**raw, **changes}, "0000:00:01.0": bridge}


def uevent(address: str, ids: str, class_: str, driver: str = "") -> dict[str, str]:
    lines = (f"DRIVER={driver}" if driver else "", f"PCI_CLASS={class_}", f"PCI_ID={ids}", f"PCI_SLOT_NAME={address}")
    return {f"/sys/bus/pci/devices/{address}/uevent": "\n".join(filter(None, lines)) + "\n"}


UEVENTS = {
    **uevent("0000:65:00.0", "10DE:2335", "30200", "nvidia"),
    **uevent("0000:66:00.0", "10DE:22A3", "68000"),
    **uevent("0000:67:00.0", "144D:A80A", "10802", "nvme"),
}


def test_a_gpu_an_nvswitch_and_a_disk_are_told_apart() -> None:
    gpu, switch, disk = devices(UEVENTS, pci_of("0000:65:00.0"))
    assert (gpu.is_gpu, gpu.is_nvswitch) == (True, False)
    assert (switch.is_gpu, switch.is_nvswitch, switch.driver) == (False, True, "")
    assert not disk.is_gpu
    assert not disk.is_nvswitch
    assert (gpu.above, gpu.numa_node, gpu.iommu_group, gpu.iommu_type) == (("0000:00:01.0",), 1, "12", "DMA-FQ")


def test_a_gpu_whose_configuration_space_is_all_ones_is_gone() -> None:
    (gpu, *_) = devices(UEVENTS, pci_of("0000:65:00.0", config="f" * 128))
    assert gpu.gone
    (gpu, *_) = devices(UEVENTS, pci_of("0000:65:00.0", config=None, unread={"config": "Input/output error"}))
    with pytest.raises(Unreadable, match="Input/output error"):
        print(gpu.gone)


def test_without_the_details_a_device_is_known_and_its_link_is_not() -> None:
    (gpu, _, disk) = devices(UEVENTS, Unreadable("program:pci: no answer within 15 s"))
    assert gpu.is_gpu
    assert not disk.gone
    with pytest.raises(Unreadable, match="no answer"):
        print(gpu.width)


def test_the_width_of_a_link_that_is_down_is_not_a_number() -> None:
    for text in ("0", "63", "255", None, ""):
        (gpu, *_) = devices(UEVENTS, pci_of("0000:65:00.0", link={"current_link_width": text, "max_link_width": "16"}))
        assert gpu.width is None
        assert gpu.width_max == 16


def test_bridges_say_whether_they_redirect() -> None:
    (bridge,) = bridges(pci_of("0000:65:00.0"))
    assert (bridge.address, bridge.acs) == ("0000:00:01.0", 0x1D)
    raw = pci_of("0000:65:00.0")
    raw["0000:00:01.0"]["unread"] = {"acs": "only root may read past the first 64 bytes"}
    with pytest.raises(Unreadable, match="only root"):
        print(bridges(raw)[0].acs)


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({facts.DETECT_VIRT: command("none\n", 1)}, ""),
        ({facts.DETECT_VIRT: command("kvm\n")}, "kvm"),
        ({facts.DETECT_VIRT: command("docker\n")}, "container"),
        ({facts.DETECT_VIRT: command("container-other\n")}, "container"),
        ({facts.DETECT_VIRT: command("wsl\n")}, "wsl"),
        ({facts.CONTAINER_MARKS[1]: {"/run/.containerenv": {}}}, "container"),
        ({facts.MOUNTS: "overlay / overlay rw 0 0\n", facts.INIT: "sleep\n"}, "container"),
        ({facts.DMI: {"a": "QEMU\n", "b": "Standard PC (Q35 + ICH9, 2009)\n"}}, "kvm"),
        ({facts.DMI: {"a": "Supermicro\n", "b": "SYS-821GE-TNHR\n"}}, ""),
        ({facts.DMI: {"a": "Microsoft Corporation\n", "b": "Virtual Machine\n"}}, "microsoft"),
    ],
)
def test_the_kind_of_machine(answers: dict[Any, Any], kind: str) -> None:
    nothing = {
        facts.DETECT_VIRT: ABSENT,
        facts.DMI: {},
        facts.MOUNTS: "/dev/sda1 / ext4 rw 0 0\n",
        facts.INIT: "systemd\n",
    }
    marks: dict[Any, Any] = {mark: {} for mark in facts.CONTAINER_MARKS}
    assert virtualization(evidence({**nothing, **marks, **answers})) == kind


def test_a_machine_that_says_nothing_about_itself_is_not_called_bare_metal() -> None:
    nothing = {
        facts.DETECT_VIRT: ABSENT,
        facts.DMI: {},
        facts.MOUNTS: "/dev/sda1 / ext4 rw 0 0\n",
        facts.INIT: "systemd\n",
    }
    with pytest.raises(Unreadable, match="neither systemd-detect-virt nor"):
        virtualization(evidence({**nothing, **{mark: {} for mark in facts.CONTAINER_MARKS}}))


@pytest.mark.parametrize(
    ("mounts", "shown"),
    [
        ("/dev/sda1 / ext4 rw,relatime 0 0\n", ()),
        ("/dev/sda1 / ext4 ro,relatime 0 0\n", ("/",)),
        ("composefs / overlay ro 0 0\n/dev/sda4 /var xfs rw 0 0\n", ()),  # an image-based system
        ("/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /var ext4 ro,errors=remount-ro 0 0\n", ("/var",)),
        ("/dev/sda1 / ext4 rw,errors=remount-ro 0 0\n", ()),
        ("rootfs / rootfs ro 0 0\n/dev/sda1 / ext4 rw 0 0\n", ()),
    ],
)
def test_what_cannot_be_written(mounts: str, shown: tuple[str, ...]) -> None:
    assert read_only(mounts) == shown


def test_df_lists_each_file_system_once() -> None:
    rows = ("Mounted on 1K-blocks Avail", "/ 264212084 67090168", "/ 264212084 67090168", "/dev/shm 24684096 24684096")
    table = "\n".join(rows)
    assert [disk.mount for disk in disks(table)] == ["/", "/dev/shm"]
    with pytest.raises(ValueError, match="no file system"):
        disks("df: command failed")


def test_key_value_lines_of_every_file_that_has_them() -> None:
    text = "# c\nNAME=\"Debian GNU/Linux\"\nexport A='b c'\nX=1 \nnot a line\nX=2\n"
    assert assignments(text) == {"NAME": "Debian GNU/Linux", "A": "b c", "X": "2"}


@given(st.text())
def test_no_answer_makes_parsing_fail(text: str) -> None:
    answers: dict[Any, Any] = dict.fromkeys(Host.probes, text)
    answers |= {facts.DMESG: command(text), facts.DISKS: command(text), facts.DETECT_VIRT: command(text)}
    answers |= {facts.UEVENTS: {text: text}, facts.DMI: {text: text}, facts.GOVERNOR: {text: text}}
    assert isinstance(Host.parse(evidence(answers)), Host)
    assert isinstance(Host.parse(Evidence("nothing was asked")), Host)
