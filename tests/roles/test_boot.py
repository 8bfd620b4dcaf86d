"""The roles boot and reboot on files of a host: modprobe, the command line, Secure Boot, reasons for a reboot."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.roles.loading import ROLES, loaded, read, write


def modprobe_edits(root: Path, **wishes: Any) -> dict[str, str]:
    """Return what boot_modprobe would write: {path below the root: text}."""
    given = {"block": [], "file": None, "allow": [], "unreserve": [], **wishes}
    edits: dict[str, str] = loaded("boot", "boot_modprobe").edits(root, given)
    return {str(Path(path).relative_to(root)): text for path, text in edits.items()}


def test_nouveau_is_blocked_in_one_file_and_in_no_other(tmp_path: Path) -> None:
    by_hand = "# by somebody\nblacklist nouveau\nblacklist floppy\noptions nouveau modeset=0\n"
    write(tmp_path, {"etc/modprobe.d/old.conf": by_hand, "usr/lib/modprobe.d/vendor.conf": "blacklist nouveau\n"})
    edits = modprobe_edits(tmp_path, block=["nouveau", "nova_core"], file="/etc/modprobe.d/ours.conf")
    assert set(edits) == {"etc/modprobe.d/old.conf", "etc/modprobe.d/ours.conf"}  # a package's own is its own affair
    kept = [line for line in edits["etc/modprobe.d/old.conf"].splitlines() if not line.startswith("#")]
    assert kept == ["blacklist floppy"]
    lines = edits["etc/modprobe.d/ours.conf"].splitlines()[1:]
    assert lines == ["blacklist nouveau", "blacklist nova_core", "options nouveau modeset=0"]
    write(tmp_path, edits)
    assert modprobe_edits(tmp_path, block=["nouveau", "nova_core"], file="/etc/modprobe.d/ours.conf") == {}


def test_what_blocks_nvidia_is_taken_out_and_stays_readable(tmp_path: Path) -> None:
    left = "blacklist nvidia-drm\ninstall nvidia \\\n  /bin/false\noptions nvidia NVreg_X=1\nblacklist pcspkr\n"
    write(tmp_path, {"etc/modprobe.d/left.conf": left, "usr/lib/modprobe.d/prime.conf": "blacklist nvidia\n"})
    edits = modprobe_edits(tmp_path, allow=["nvidia", "nvidia_drm"])
    # A file outside /etc is not edited but masked by one of its name.
    assert set(edits) == {"etc/modprobe.d/left.conf", "etc/modprobe.d/prime.conf"}
    said = [line for line in edits["etc/modprobe.d/left.conf"].splitlines() if not line.startswith("#")]
    assert said == ["options nvidia NVreg_X=1", "blacklist pcspkr"]
    assert edits["etc/modprobe.d/left.conf"].count("# taken out by lpxdoctor") == 3
    write(tmp_path, edits)
    assert modprobe_edits(tmp_path, allow=["nvidia", "nvidia_drm"]) == {}


def test_only_nvidias_devices_are_taken_back_from_virtual_machines(tmp_path: Path) -> None:
    write(tmp_path, {"etc/modprobe.d/vfio.conf": "options vfio-pci ids=10de:2335,8086:1572 disable_vga=1\n"})
    edits = modprobe_edits(tmp_path, unreserve=["10de"])
    assert edits["etc/modprobe.d/vfio.conf"].splitlines()[-1] == "options vfio-pci ids=8086:1572 disable_vga=1"


def command_line(root: Path, **wishes: Any) -> dict[str, str]:
    """Return what boot_command_line would write: {path below the root: text}."""
    given = {"allow": [], "unreserve": [], "remove": [], "add": [], **wishes}
    edits: dict[Path, str] = loaded("boot", "boot_command_line").wanted_files(root, given)
    return {str(path.relative_to(root)): text for path, text in edits.items()}


GRUB = 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet modprobe.blacklist=nouveau,nvidia"\nGRUB_CMDLINE_LINUX=""\n'


def test_the_command_line_loses_what_blocks_nvidia_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, {"etc/default/grub": GRUB, "etc/kernel/cmdline": "root=/dev/vda1 module_blacklist=nvidia\n"})
    edits = command_line(tmp_path, allow=["nvidia", "nvidia_drm"])
    assert edits["etc/default/grub"] == GRUB.replace("nouveau,nvidia", "nouveau")
    assert edits["etc/kernel/cmdline"] == "root=/dev/vda1\n"
    write(tmp_path, edits)
    assert command_line(tmp_path, allow=["nvidia", "nvidia_drm"]) == {}


def test_parameters_are_added_once_for_every_entry(tmp_path: Path) -> None:
    write(tmp_path, {"etc/default/grub": GRUB})
    edits = command_line(tmp_path, add=["iommu=pt"], remove=["iommu=off"])
    assert 'GRUB_CMDLINE_LINUX="iommu=pt"' in edits["etc/default/grub"]
    write(tmp_path, edits)
    assert command_line(tmp_path, add=["iommu=pt"], remove=["iommu=off"]) == {}


def test_a_menu_that_was_edited_by_hand_is_made_anew(tmp_path: Path) -> None:
    write(
        tmp_path, {"boot/grub/grub.cfg": "menuentry 'x' {\n linux /vmlinuz root=/dev/vda1 module_blacklist=nvidia\n}\n"}
    )
    boot = loaded("boot", "boot_command_line")
    given = {"allow": ["nvidia"], "unreserve": [], "remove": [], "add": []}
    assert boot.menu_is_stale(tmp_path, given)
    assert not boot.menu_is_stale(tmp_path, {**given, "allow": []})


def test_settings_come_back_where_the_menu_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, {"etc/default/grub": GRUB}) / "etc/default/grub"
    boot = loaded("boot", "boot_command_line")

    class Module:
        def backup_local(self, path: str) -> str:
            return path + ".backup"

    def fails(*argv: str) -> str:
        raise boot.Refused(f"{argv[0]} ended with 1")

    monkeypatch.setattr(boot, "run", fails)
    given = {"allow": ["nvidia"], "unreserve": [], "remove": [], "add": []}
    with pytest.raises(Exception, match="settings are as they were"):
        boot.apply(Module(), tmp_path, {file: "GRUB_CMDLINE_LINUX=\n"}, given, menu=True)
    assert file.read_text() == GRUB


def test_secure_boot_asks_for_a_key_only_where_dkms_builds(tmp_path: Path) -> None:
    signing = loaded("boot", "boot_signing")
    variable = tmp_path / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\0\0\0\x01")
    assert signing.look(tmp_path)["secure_boot"]
    assert not signing.look(tmp_path)["needed"]
    write(tmp_path, {"var/lib/dkms/nvidia/580.159.04/source/dkms.conf": "", "var/lib/dkms/mok.pub": "key"})
    seen = signing.look(tmp_path)
    assert seen["needed"]
    assert seen["key"] == str(tmp_path / "var/lib/dkms/mok.pub")
    variable.write_bytes(b"\x06\0\0\0\0")
    assert not signing.look(tmp_path)["needed"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the host's openssl makes the key")
def test_the_key_that_dkms_signs_with_is_a_certificate_that_firmware_takes(tmp_path: Path) -> None:
    argv = [word.replace("/var/lib/dkms", str(tmp_path)) for word in read(ROLES / "boot/vars/main.yml")["boot_new_key"]]
    subprocess.run(argv, check=True, capture_output=True)
    assert (tmp_path / "mok.key").stat().st_mode & 0o077 == 0
    shown = ("openssl", "x509", "-inform", "DER", "-in", tmp_path / "mok.pub", "-noout", "-subject")
    assert "DKMS module signing key" in subprocess.run(shown, check=True, capture_output=True, text=True).stdout


def test_all_gpus_given_to_virtual_machines_are_seen(tmp_path: Path) -> None:
    look = loaded("boot", "boot_look")
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.1.0\n"})
    for address, driver in (("0000:06:00.0", "vfio-pci"), ("0000:07:00.0", "vfio-pci")):
        text = f"DRIVER={driver}\nPCI_CLASS=30200\nPCI_ID=10DE:2335\n"
        write(tmp_path, {f"sys/bus/pci/devices/{address}/uevent": text})
    assert look.look(tmp_path)["given_away"]
    write(tmp_path, {"sys/bus/pci/devices/0000:07:00.0/uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2335\n"})
    assert not look.look(tmp_path)["given_away"]


def test_the_reasons_for_a_reboot(tmp_path: Path) -> None:
    reasons = loaded("reboot", "reboot_reasons")
    write(
        tmp_path,
        {
            "run/reboot-required": "",
            "run/reboot-required.pkgs": "linux-image-6.1\n",
            "proc/sys/kernel/osrelease": "6.1.0\n",
            "lib/modules/6.1.0/updates/dkms/nvidia-current.ko": "",
            "sys/module/nouveau/refcnt": "1\n",
        },
    )
    assert reasons.of_distribution(tmp_path) == ["packages ask for it: linux-image-6.1"]
    assert reasons.of_modules(tmp_path) == ["nouveau is loaded, and NVIDIA's module is on disk"]
