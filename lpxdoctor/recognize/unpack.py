"""A stream of bytes in, plain or packed in any usual way; its text in blocks out, never more than a block at a time."""

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from lpxdoctor.recognize.tar import BLOCK as TAR_BLOCK
from lpxdoctor.recognize.tar import TarError, is_tar, members

BLOCK = 1 << 20
LIMIT_BYTES = 1 << 30  # unpacked: a bomb ends here, and so does a sparse file
_DEPTH = 3  # a .log.gz in a .tar.xz
_XZ_MEMORY = 160 << 20
_BUNDLE_HEAD, _BUNDLE_BYTES = b'{"schema":', 64 << 20  # as evidence.to_json begins
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}  # what PowerShell's > writes
# What cannot be read here -> how it is unpacked.
_FOREIGN = {
    b"\x28\xb5\x2f\xfd": "zstd -dc FILE | lpxdoctor diagnose -",
    b"PK\x03\x04": "unzip -p FILE | lpxdoctor diagnose -",
    b"7z\xbc\xaf": "7z x -so FILE | lpxdoctor diagnose -",
    b"LPKSHHRH": "journalctl --file FILE | lpxdoctor diagnose -",
}


class Packed(Exception):  # noqa: N818 - it says how, not that something broke
    """The input is packed in a way that is not read here; str() of it is what to type instead."""


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""
        ...


class Decompressor(Protocol):
    """What bz2 and lzma offer, and zlib nearly."""

    @property
    def eof(self) -> bool:
        """Whether the packed stream has ended."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out of what went in."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What stood behind the end."""
        ...

    def decompress(self, data: bytes, max_length: int = ...) -> bytes:
        """Return at most so many bytes of what comes out."""
        ...


class _Zlib:
    """zlib's decompressor with the others' interface."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=47)  # gzip or zlib, by its header

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_PACKERS: dict[bytes, Callable[[], Decompressor]] = {
    b"\x1f\x8b": _Zlib,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
}


class _Ahead:
    """A stream whose beginning was looked at already."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int) -> bytes:
        if self._head:
            part, self._head = self._head[:size], self._head[size:]
            return part
        return self._rest.read(size)


class _Unpacking:
    """A packed stream, as what is in it; several packed one behind the other are one."""

    def __init__(self, packed: Readable, make: Callable[[], Decompressor]) -> None:
        self._packed, self._make, self._inner = packed, make, make()

    def read(self, size: int) -> bytes:
        while True:
            if self._inner.eof:
                left = self._inner.unused_data or self._packed.read(BLOCK)
                if not left.strip(b"\0"):
                    return b""
                self._inner = self._make()
                data = left
            else:
                data = self._packed.read(1 << 16) if self._inner.needs_input else b""
                if self._inner.needs_input and not data:
                    raise EOFError("it ends in the middle")
            out = self._inner.decompress(data, size)
            if out:
                return out


@dataclass
class Unpacked:
    """What came out of a stream besides its blocks: evidence files that lay in it, and what could not be read."""

    bundles: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    read_bytes: int = 0


def blocks(stream: BinaryIO, kept: Unpacked) -> Iterator[bytes]:
    """Yield the text of a stream in blocks, each file of an archive behind a line "*** its name".

    Raises Packed for what cannot be unpacked here; a damaged archive is read as far as it goes, which kept.notes says.
    """
    for block in _parts(stream, kept, _DEPTH):
        kept.read_bytes += len(block)
        yield block
        if kept.read_bytes >= LIMIT_BYTES:
            kept.notes.append(f"only the first {LIMIT_BYTES >> 20} MiB were read")
            return


def _parts(stream: Readable, kept: Unpacked, depth: int) -> Iterator[bytes]:
    head = _read_full(stream, TAR_BLOCK)
    whole = _Ahead(head, stream)
    make = next((make for magic, make in _PACKERS.items() if head.startswith(magic)), None)
    foreign = next((command for magic, command in _FOREIGN.items() if head.startswith(magic)), "")
    if foreign:
        if depth == _DEPTH:
            raise Packed(foreign)
        kept.notes.append("a file in it is packed in a way that is not read here")
    elif make and depth:
        yield from _tolerant(_parts(_Unpacking(whole, make), kept, depth - 1), kept)
    elif is_tar(head) and depth:
        yield from _tolerant(_files(whole, kept, depth - 1), kept)
    elif head.lstrip().startswith(_BUNDLE_HEAD):
        yield from _bundle(whole, kept)
    else:
        yield from _plain(whole, head)


def _bundle(stream: Readable, kept: Unpacked) -> Iterator[bytes]:
    """Keep a file of evidence apart; yield one that only looks like it."""
    data = _read_full(stream, _BUNDLE_BYTES)
    if b'"answers"' in data:
        kept.bundles.append(data)
        return
    yield data
    yield from _plain(stream, b"")


def _tolerant(inner: Iterator[bytes], kept: Unpacked) -> Iterator[bytes]:
    """Yield until the packing turns out to be damaged."""
    try:
        yield from inner
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, TarError) as error:
        kept.notes.append(f"the archive is damaged ({error}); what stands before was read")


def _files(stream: Readable, kept: Unpacked, depth: int) -> Iterator[bytes]:
    """Yield the regular files of a tar; nothing is written anywhere, so it does not matter where they would go."""
    for name, content in members(stream):
        yield f"\n*** {name}\n".encode()
        yield from _parts(content, kept, depth)
        yield b"\n"


def _plain(stream: Readable, head: bytes) -> Iterator[bytes]:
    """Yield text as UTF-8."""
    # Every ASCII sign has a zero byte in it, so a text without any is none.
    encoding = next((name for bom, name in _UTF_16.items() if head.startswith(bom) and b"\0" in head), "")
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while block := stream.read(BLOCK):
        yield decoder.decode(block).encode("utf-8", "replace") if decoder else block


def _read_full(stream: Readable, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
