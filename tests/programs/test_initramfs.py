"""Initramfs images of every make-up, built here as mkinitramfs and dracut build theirs, are read without tools."""

import bz2
import gzip
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.programs import initramfs

FILE, LINK, DIRECTORY = 0o100644, 0o120777, 0o040755
RELEASE = "6.8.0-87-generic"
NOUVEAU = f"usr/lib/modules/{RELEASE}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst"
NVIDIA = f"usr/lib/modules/{RELEASE}/updates/dkms/nvidia.ko"
MODULE = b"\x7fELF" + bytes(64) + b"\0version=580.95.05\0license=Dual MIT/GPL\0" + bytes(64)
BLACKLIST = "usr/lib/modprobe.d/nvidia-graphics-drivers.conf"


def cpio(*members: tuple[str, int, bytes], inodes: tuple[int, ...] = ()) -> bytes:
    """Return an archive of format newc, padded with zeros as the tools do."""
    data = bytearray()
    for number, (name, mode, content) in enumerate((*members, ("TRAILER!!!", 0, b""))):
        inode = inodes[number] if number < len(inodes) else number + 1
        raw = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 2, 0, len(content), 0, 0, 0, 0, len(raw), 0)
        data += b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + raw
        data += bytes(-len(data) % 4) + content
        data += bytes(-len(data) % 4)
    return bytes(data) + bytes(-len(data) % 512)


def tool(*argv: str) -> Callable[[bytes], bytes]:
    return lambda data: subprocess.run(argv, input=data, capture_output=True, check=True).stdout


MICROCODE = cpio(("kernel/x86/microcode/GenuineIntel.bin", FILE, b"\x01" * 5000))
MAIN = cpio(
    ("etc/modprobe.d", DIRECTORY, b""),
    (BLACKLIST, FILE, b"blacklist nouveau\n"),
    (NOUVEAU, FILE, b"\x28\xb5\x2f\xfd" + b"x" * 3001),
    (NVIDIA, FILE, MODULE),
    ("etc/cmdline.d/10-gpu.conf", FILE, b"rd.driver.blacklist=nouveau\n"),
    ("etc/other.conf", FILE, b"ignored\n"),
    ("bin/sh", FILE, b"#!" * 100_000),
)
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "bzip2": bz2.compress,
    "zstd": tool("zstd", "-qc"),
    "lz4": tool("lz4", "-qlc"),
}


@pytest.mark.parametrize("method", COMPRESSED)
@pytest.mark.parametrize("early", [b"", MICROCODE, MICROCODE + bytes(1024) + MICROCODE])
def test_an_image_is_read_behind_its_microcode_and_through_its_compression(
    tmp_path: Path, method: str, early: bytes
) -> None:
    if method in ("zstd", "lz4") and not shutil.which(method):
        pytest.skip(f"{method} is not installed")
    image = tmp_path / "initrd"
    image.write_bytes(early + COMPRESSED[method](MAIN))
    assert initramfs.summary(image) == {
        "modules": [NOUVEAU, NVIDIA],
        "settings": {BLACKLIST: "blacklist nouveau\n", "etc/cmdline.d/10-gpu.conf": "rd.driver.blacklist=nouveau\n"},
        "nvidia_version": "580.95.05",
        "reason": "",
    }


def test_a_setting_behind_a_link_is_followed(tmp_path: Path) -> None:
    image = tmp_path / "initrd"
    image.write_bytes(
        cpio(
            ("etc/modprobe.d/nvidia.conf", LINK, b"../nvidia/current/blacklist.conf"),
            ("etc/modprobe.d/gone.conf", LINK, b"/etc/nowhere.conf"),
            ("./etc/nvidia/current/blacklist.conf", FILE, b"blacklist nouveau\n"),
        )
    )
    assert initramfs.summary(image)["settings"] == {"etc/modprobe.d/nvidia.conf": "blacklist nouveau\n"}


def test_of_hard_links_the_last_one_carries_the_text_for_all(tmp_path: Path) -> None:
    image = tmp_path / "initrd"
    one, two = "etc/modprobe.d/a.conf", "usr/lib/modprobe.d/b.conf"
    image.write_bytes(cpio((one, FILE, b""), (two, FILE, b"blacklist nouveau\n"), inodes=(7, 7)))
    assert initramfs.summary(image)["settings"] == {one: "blacklist nouveau\n", two: "blacklist nouveau\n"}


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz", ".zst"])
def test_the_version_of_a_compressed_module(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESSED[{"": "none", ".xz": "xz", ".gz": "gzip", ".zst": "zstd"}[suffix]]
    if suffix == ".zst" and not shutil.which("zstd"):
        pytest.skip("zstd is not installed")
    image = tmp_path / "initrd"
    image.write_bytes(cpio((NVIDIA + suffix, FILE, compress(MODULE))))
    assert initramfs.summary(image)["nvidia_version"] == "580.95.05"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (cpio((BLACKLIST, FILE, b"x" * 100))[:150], "it is cut off"),
        (gzip.compress(MAIN, mtime=0)[:100], "end-of-stream marker"),
        (b"\x7fELF" + bytes(600), "compressed in an unknown way (it begins with 7f454c46)"),
        (b"MZ\x90\0" + bytes(600), "part of a unified kernel image"),
    ],
)
def test_an_image_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, reason: str) -> None:
    image = tmp_path / "initrd"
    image.write_bytes(data)
    assert reason in initramfs.summary(image)["reason"]


def test_a_compressor_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "initrd"
    image.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert initramfs.summary(image)["reason"] == "it is compressed with zstd, and that command is not installed"


def test_the_newest_kernels_image_is_found_where_each_distribution_puts_it(tmp_path: Path) -> None:
    for release in (RELEASE, "6.8.0-100-generic", "6.8.0-9-generic"):
        (tmp_path / "lib/modules" / release).mkdir(parents=True)
    (tmp_path / "boot").mkdir()
    (only,) = initramfs.images(tmp_path)
    assert only == {"release": "6.8.0-100-generic", "path": ""}
    for name in ("boot/initrd.img-6.8.0-100-generic", "boot/initramfs-6.8.0-100-generic.img"):
        (tmp_path / name).write_bytes(MAIN)
        (only,) = initramfs.images(tmp_path)
        assert only["path"] == str(tmp_path / name)
        (tmp_path / name).unlink()


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        found = initramfs.summary(Path(file.name))
    assert found["reason"] or found["modules"] == []
