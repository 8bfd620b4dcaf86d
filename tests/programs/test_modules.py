"""The modules program reads a tree laid out as depmod and DKMS lay out theirs, and this machine's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.facts.modules import Kernel
from lpxdoctor.programs import modules

OLD, NEW = "6.8.0-9-generic", "6.8.0-87-generic"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for release in (OLD, NEW):
        tree = tmp_path / "lib/modules" / release
        tree.mkdir(parents=True)
        (tree / "modules.builtin").write_text("kernel/fs/ext4/ext4.ko\n")
    (tmp_path / "lib/modules" / NEW / "modules.dep").write_text(
        "kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst: kernel/drivers/gpu/drm/drm.ko.zst\n"
        "kernel/drivers/net/ethernet/nvidia/forcedeth.ko.zst:\n"
        "updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\n"
        "updates/dkms/nvidia.ko.zst:\n"
    )
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "Makefile").write_text("")
    (tmp_path / "lib/modules" / NEW / "build").symlink_to(headers)
    (tmp_path / "lib/modules" / OLD / "build").symlink_to(tmp_path / "gone")
    return tmp_path


def test_kernels_come_newest_first_with_their_gpu_modules(root: Path) -> None:
    assert modules.kernels(root / "lib/modules") == [
        {
            "release": NEW,
            "headers": True,
            "modules": [
                "kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst",
                "updates/dkms/nvidia-uvm.ko.zst",
                "updates/dkms/nvidia.ko.zst",
            ],
            "builtin": [],
        },
        {"release": OLD, "headers": False, "modules": None, "builtin": []},
    ]
    assert modules.kernels(root / "nothing") == []


@pytest.mark.parametrize(
    ("name", "main"),
    [
        ("updates/dkms/nvidia.ko", True),
        ("updates/dkms/nvidia-current.ko", True),
        ("updates/dkms/nvidia-current-open.ko.xz", True),
        ("updates/dkms/nvidia-tesla-470.ko", True),
        ("updates/dkms/nvidia-legacy-390xx.ko", True),
        ("kernel/nvidia-580srv-open/nvidia.ko.zst", True),
        ("updates/dkms/nvidia-uvm.ko", False),
        ("updates/dkms/nvidia-current-drm.ko", False),
        ("kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko", False),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", False),
        ("kernel/drivers/usb/typec/altmodes/typec_nvidia.ko", False),
    ],
)
def test_the_main_module_under_all_its_names(
    name: str, main: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # so that asking modinfo of a main module ends with a reason
    asked = modules.modinfo(tmp_path, {"release": NEW, "modules": [name]}) != {}
    assert asked == main
    assert bool(Kernel(NEW, headers=True, modules=(name,)).nvidia) == main


def dkms_tree(root: Path, version: str, *built: str, log: str = "", name: str = "nvidia") -> None:
    tree = root / "var/lib/dkms" / name / version
    (tree / "source").mkdir(parents=True)
    for release in built:
        (tree / release / "x86_64" / "module").mkdir(parents=True)
    if log:
        (tree / "build").mkdir()
        (tree / "build/make.log").write_text(log)


def test_dkms_says_what_it_built_and_why_it_did_not(root: Path) -> None:
    dkms_tree(root, "580.95.05", NEW, OLD)
    dkms_tree(root, "580.105.08", log="\n".join(["DKMS make.log for nvidia-580.105.08", *map(str, range(500))]))
    dkms_tree(root, "2.26.6", name="nvidia-fs")
    (root / "var/lib/dkms/nvidia/kernel-6.8.0-87-generic-x86_64").symlink_to(f"580.95.05/{NEW}/x86_64")
    found = modules.dkms(root / "var/lib/dkms")
    assert [(one["version"], one["built"]) for one in found] == [("580.105.08", []), ("580.95.05", [NEW, OLD])]
    log = found[0]["log"]
    assert (len(log), log[0], log[-1]) == (121, "DKMS make.log for nvidia-580.105.08", "499")


def test_without_its_tools_the_reasons_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    found = modules.answer(root)
    assert found["showconfig"] is None
    assert found["showconfig_reason"] == "modprobe: No such file or directory"
    assert found["modinfo"] == {NEW: "modinfo: No such file or directory"}


def test_a_module_that_is_none_is_reported_with_its_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = root / "bin"
    tools.mkdir()
    script = tools / "modinfo"
    script.write_text("#!/bin/sh\necho \"modinfo: ERROR: could not get modinfo from '$1'\" >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    found = modules.answer(root)["modinfo"][NEW]
    assert "could not get modinfo" in found
    assert "updates/dkms/nvidia.ko.zst" in found


def test_this_machine_is_asked() -> None:
    done = subprocess.run([sys.executable, modules.__file__], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    tree = Path("/lib/modules")
    releases = {path.name for path in tree.iterdir() if path.is_dir()} if tree.is_dir() else set()
    assert {kernel["release"] for kernel in found["kernels"]} == releases
    assert (found["showconfig"] is None) == bool(found["showconfig_reason"])
