"""The bytes of a tar archive in, its regular files one after the other out; links, devices and paths mean nothing here.

The library's reader keeps a header of any claimed size in memory; this one keeps nothing.
"""

import re
from collections.abc import Iterator
from typing import Protocol

BLOCK = 512
_NAME_BYTES = 4096
_REGULAR = (b"0", b"\0", b"7")
_LONG_NAME, _EXTENDED = b"L", b"x"


class TarError(Exception):
    """The archive cannot be read further; str() of it says why."""


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, none at the end."""
        ...


class Content:
    """The bytes of one file in the stream, and the padding behind them."""

    def __init__(self, stream: Readable, size: int) -> None:
        self._stream, self._left, self._padding = stream, size, -size % BLOCK

    def read(self, size: int) -> bytes:
        """Return at most so many bytes, none at the end of the file."""
        data = self._stream.read(min(size, self._left)) if self._left else b""
        if self._left and not data:
            raise TarError("it ends in the middle of a file")
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Read to the header of the next file."""
        while self._left:
            self.read(1 << 16)
        self._left, self._padding = self._padding, 0
        while self._left:
            self.read(BLOCK)


def is_tar(head: bytes) -> bool:
    """Tell by its first block whether a stream is a tar."""
    return len(head) >= BLOCK and head[257:262] == b"ustar"


def members(stream: Readable) -> Iterator[tuple[str, Content]]:
    """Yield (name, content) of each regular file; the content is read before the next is asked for, or skipped."""
    named = ""
    while len(head := _header(stream)) == BLOCK and head.strip(b"\0"):
        content = Content(stream, _size(head[124:136]))
        kind = head[156:157]
        if kind == _LONG_NAME:
            named = _text(content.read(_NAME_BYTES))
        elif kind == _EXTENDED:
            path = re.search(rb"^\d+ path=(.*)$", content.read(_NAME_BYTES), flags=re.MULTILINE)
            named = _text(path[1]) if path else named
        else:
            if kind in _REGULAR:
                prefix = _text(head[345:500])
                yield named or "/".join(filter(None, (prefix, _text(head[:100])))), content
            named = ""
        content.skip()


def _header(stream: Readable) -> bytes:
    head = b""
    while len(head) < BLOCK and (part := stream.read(BLOCK - len(head))):
        head += part
    return head


def _size(field: bytes) -> int:
    """Return a size in octal digits, or for large files in binary."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise TarError("the size of a file is no number")
    return int(digits or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace").replace("\n", "?")
