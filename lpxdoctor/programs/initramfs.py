"""Print what decides about the GPU's driver in the initramfs of the running and of the newest kernel, as JSON.

[{"release", "path", "modules": [path inside], "settings": {path inside: text}, "nvidia_version", "reason"}]: settings
are the files of modprobe.d and of dracut's cmdline.d, nvidia_version that of an NVIDIA module inside, "" where there is
none; path is "" where the kernel has no initramfs, and reason says why one could not be read.

An initramfs is any sequence of cpio archives, of which the last is mostly compressed (the kernel's
Documentation/driver-api/early-userspace/buffer-format.rst). It is read here, and not by lsinitramfs or lsinitrd: they
list names, each costs half as much again, and neither is there on every distribution.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import posixpath
import re
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from lpxdoctor.programs._kernels import natural

_PLACES = (
    "boot/initrd.img-{0}",  # Debian, Ubuntu
    "boot/initramfs-{0}.img",  # RHEL, Fedora
    "boot/initrd-{0}",  # SUSE
    "boot/*/{0}/initrd*",  # kernel-install
    "boot/efi/*/{0}/initrd*",
    "efi/*/{0}/initrd*",
    "boot/efi/EFI/Linux/*{0}*.efi",  # unified kernel images
    "efi/EFI/Linux/*{0}*.efi",
)
_SETTING = re.compile(r"(?:etc|run|(?:usr/)?(?:local/)?lib)/(?:modprobe|cmdline)\.d/[^/]+\.conf")
_GPU_MODULE = re.compile(r"(?:^|/)(?:nvidia[\w-]*|nouveau|nova[_-]core)\.ko(?:\.\w+)?$")
_MAIN_MODULE = re.compile(r"(?:^|/)nvidia(?:-current|-tesla|-legacy)?(?:-open|-\d\w*)*\.ko(?:\.\w+)?$")
_VERSION = re.compile(rb"(?:^|\0)version=([\w.+-]+)\0")
_HEADER = 110
_CHUNK = 1 << 20
_SETTING_BYTES = 1 << 16
_COMMANDS = {b"\x28\xb5\x2f\xfd": "zstd", b"\x02\x21\x4c\x18": "lz4", b"\x04\x22\x4d\x18": "lz4", b"\x89LZO": "lzop"}
_LIBRARIES: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
    b"BZh": bz2.open,
}


class Unknown(Exception):  # noqa: N818 - it is a reason
    """The image cannot be read; str() of it says why."""


@dataclass
class Member:
    """A file or link of an archive. Its content must be read before the next member is asked for."""

    name: str
    mode: int
    inode: int
    size: int
    _file: Any
    _left: int

    def content(self) -> bytes:
        """Read what is in it: a link's is its target."""
        data: bytes = self._file.read(self._left)
        self._left = 0
        return data[: self.size]

    def skip(self) -> None:
        """Leave out what was not read."""
        while self._left:
            read = len(self._file.read(min(self._left, _CHUNK)))
            if not read:
                raise Unknown("it is cut off")
            self._left -= read


def members(path: Path) -> Iterator[Member]:
    """Yield everything in an initramfs, in order."""
    with path.open("rb") as file:
        while magic := _next_magic(file):
            if magic.startswith(b"0707"):
                yield from _cpio(file)
                continue
            with _decompressed(file, magic) as stream:
                while _next_magic(stream):
                    yield from _cpio(stream)
            return


def _next_magic(file: Any) -> bytes:
    """Skip the zeros between archives and return the first bytes of the next, which stay unread; b"" at the end."""
    while ahead := file.peek(_HEADER):
        rest = ahead.lstrip(b"\0")
        file.read(len(ahead) - len(rest))
        if rest:
            return bytes(file.peek(8)[:8])
    return b""


def _cpio(file: Any) -> Iterator[Member]:
    """Yield the members of one archive, format newc."""
    while True:
        header = file.read(_HEADER)
        if len(header) < _HEADER or not header.startswith(b"0707"):
            raise Unknown("it is cut off, or no cpio archive of format newc")
        inode, mode, size, length = (int(header[at : at + 8], 16) for at in (6, 14, 54, 94))
        name = file.read(length + -(_HEADER + length) % 4)[: length - 1].decode("utf-8", "backslashreplace")
        if name == "TRAILER!!!":
            return
        member = Member(posixpath.normpath(name).lstrip("/"), mode, inode, size, file, size + -size % 4)
        yield member
        member.skip()


@contextlib.contextmanager
def _decompressed(file: Any, magic: bytes) -> Generator[Any, None, None]:
    """Open the rest of a file as the stream that was compressed into it."""
    for start, opened in _LIBRARIES.items():
        if magic.startswith(start):
            with opened(file) as stream:
                yield io.BufferedReader(stream, _CHUNK)
            return
    if magic.startswith(b"MZ"):
        raise Unknown("it is part of a unified kernel image, which is not looked into")
    command = _COMMANDS.get(magic[:4])
    if command is None:
        raise Unknown(f"it is compressed in an unknown way (it begins with {magic[:4].hex()})")
    os.lseek(file.fileno(), file.tell(), os.SEEK_SET)  # the child reads on from here, not behind our buffer
    try:
        child = subprocess.Popen((command, "-dcq"), stdin=file, stdout=subprocess.PIPE, bufsize=_CHUNK)
    except FileNotFoundError:
        raise Unknown(f"it is compressed with {command}, and that command is not installed") from None
    with child:
        yield child.stdout


@dataclass
class _Contents:
    """What was met so far in an image: texts and links of settings, and names whose text comes with a later link."""

    modules: list[str]
    texts: dict[str, str]
    links: dict[str, str]
    waiting: dict[int, list[str]]
    nvidia_version: str = ""

    def take(self, member: Member) -> None:
        """Keep what matters of a member."""
        if stat.S_ISLNK(member.mode):
            if _SETTING.fullmatch(member.name):
                self.links[member.name] = member.content().decode("utf-8", "backslashreplace")
        elif not stat.S_ISREG(member.mode):
            return
        elif member.name.endswith(".conf"):
            names = self.waiting.setdefault(member.inode, [])
            names.append(member.name)
            if member.size and member.size <= _SETTING_BYTES:  # of hard links only the last one carries the data
                text = member.content().decode("utf-8", "backslashreplace")
                self.texts.update(dict.fromkeys(self.waiting.pop(member.inode), text))
        elif _GPU_MODULE.search(member.name):
            self.modules.append(member.name)
            if _MAIN_MODULE.search(member.name):
                self.nvidia_version = _version(member.name, member.content())

    def settings(self) -> dict[str, str]:
        """Return the settings by name, links followed: Debian's alternatives put one behind each NVIDIA setting."""
        found = {name: text for name, text in self.texts.items() if _SETTING.fullmatch(name)}
        for name, target in self.links.items():
            followed = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), target)).lstrip("/")
            if followed in self.texts:
                found[name] = self.texts[followed]
        return found


def summary(path: Path) -> dict[str, Any]:
    """Return the GPU modules and the settings in an initramfs, and why the rest is missing where it is."""
    contents = _Contents([], {}, {}, {})
    reason = ""
    try:
        for member in members(path):
            contents.take(member)
    except OSError as error:
        reason = error.strerror or str(error)
    except (Unknown, EOFError, ValueError, lzma.LZMAError) as error:
        reason = str(error)
    return {
        "modules": contents.modules,
        "settings": contents.settings(),
        "nvidia_version": contents.nvidia_version,
        "reason": reason,
    }


def _version(name: str, data: bytes) -> str:
    """Return the version in a kernel module, "" where it cannot be decompressed or has none."""
    if name.endswith(".xz"):
        data = lzma.decompress(data)
    elif name.endswith(".gz"):
        data = gzip.decompress(data)
    elif name.endswith(".zst"):
        try:
            data = subprocess.run(("zstd", "-dcq"), input=data, capture_output=True, check=False).stdout
        except FileNotFoundError:
            return ""
    match = _VERSION.search(data)
    return match[1].decode() if match else ""


def images(root: Path) -> list[dict[str, Any]]:
    """Return the initramfs of the newest and of the running kernel below a root directory."""
    tree = root / "lib/modules"
    names = [path.name for path in tree.iterdir() if path.is_dir()] if tree.is_dir() else []
    newest = sorted(names, key=natural)[-1:]
    found = []
    for release in dict.fromkeys([*newest, *(name for name in names if name == os.uname().release)]):
        paths = [path for place in _PLACES for path in sorted(root.glob(place.format(release)))]
        known = summary(paths[0]) if paths else {}
        found.append({"release": release, "path": str(paths[0]) if paths else "", **known})
    return found


if __name__ == "__main__":
    json.dump(images(Path(sys.argv[1] if len(sys.argv) > 1 else "/")), sys.stdout)
