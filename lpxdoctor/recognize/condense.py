"""Blocks of text in, of any size; out a bounded excerpt: all lines of a short text, of a long one those worth a look.

A long text is looked at by the shapes of its lines, a shape being a line without its digits: a server's log of millions
of lines has some dozens. A shape that names nothing of interest is looked at once.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

WHOLE_BYTES = 1 << 20
_HEAD_BYTES, _TAIL_BYTES, _TABLE_BYTES = 640 << 10, 256 << 10, 384 << 10
LINE_BYTES = 8 << 10
_OF_A_SHAPE = 16
_SHAPES = 200_000
_OF_AN_XID = 6

_LOWER = bytes(range(256)).lower()
_VARYING = b"0123456789.abcdefABCDEF"  # numbers, and the letters of hexadecimal ones
# Words without which a line is about nothing that is known here. The rare ones are followed to the end of any text,
# the common ones until they have filled the excerpt.
_RARE = (
    *(
        b"nvrm",
        b"nvidia",
        b"nouveau",
        b"xid",
        b"nvml",
        b"cuda",
        b"nccl",
        b"nvlink",
        b"libcuda",
        b"vfio",
        b"secure boot",
    ),
    *(b"outofmemory", b"oom", b"killed process", b"version mismatch", b"dkms", b"fabric", b"mokutil", b"traceback"),
)
_COMMON = (
    *(b"error", b"fail", b"fatal", b"denied", b"refused", b"rejected", b"invalid", b"unknown", b"unable", b"cannot"),
    *(b"could not", b"couldn't", b"no such", b"not found", b"unsupported", b"not supported", b"in use", b"timed out"),
    *(
        b"timeout",
        b"missing",
        b"insufficient",
        b"out of memory",
        b"read-only",
        b"no space",
        b"memory",
        b"enforce-eager",
    ),
    *(b"acsctl", b"lnksta", b"lnkcap", b"kernel driver in use", b"uname", b"linux version", b"boot_image", b"pcie bus"),
    *(b"runtimes:", b"cgroup driver", b"storage driver", b"server version", b"pretty_name", b"docker run", b"throttl"),
)
_TABLE = re.compile(rb"^\s*\|.*\|\s*$|^\*\*\* |^ii\s|^\[[0-9]+\]")
_XID = re.compile(rb"Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_LISTING = re.compile(rb"NVSMI LOG")
_IN_LISTING = re.compile(rb"^(?:\s.*|GPU [0-9A-Fa-f].*|[\w ()/-]+ : .*|)$")
_LISTING_LINES = 6000


@dataclass(frozen=True)
class Excerpt:
    """Lines with their numbers from 1, and what they are an excerpt of."""

    lines: tuple[tuple[int, bytes], ...]
    total_lines: int
    whole: bool  # whether it is the whole text
    binary: bool  # whether it does not look like text


@dataclass
class _Budget:
    """The lines that may still be kept."""

    left: int
    lines: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, number: int, line: bytes) -> bool:
        if self.left < len(line):
            return False
        self.left -= len(line) + 1
        self.lines.append((number, line))
        return True


class Condenser:
    """Takes blocks by feed, gives the excerpt by finish; what it holds is bounded, whatever it is fed."""

    def __init__(self) -> None:
        self._whole: bytes | None = b""
        self._carry, self._dropping = b"", False
        self._number = 0
        self._dull: set[bytes] = set()
        self._hot: Counter[bytes] = Counter()
        self._xids: Counter[tuple[bytes, bytes]] = Counter()
        self._head, self._tables = _Budget(_HEAD_BYTES), _Budget(_TABLE_BYTES)
        self._tail: deque[tuple[int, bytes]] = deque()
        self._tail_bytes = 0
        self._listing = 0  # lines of an nvidia-smi -q that may still come
        self._odd = self._seen = 0

    def feed(self, block: bytes) -> None:
        """Take the next block."""
        if self._seen < WHOLE_BYTES:
            self._seen += len(block)
            self._odd += sum(block.count(bytes([code])) for code in (0, 1, 2, 3, 4, 5, 6, 14, 15, 16, 255))
        lines = self._complete(block)
        if self._whole is None:
            self._condense(lines)
        elif len(self._whole) + len(lines) > WHOLE_BYTES:
            lines, self._whole = self._whole + lines, None
            self._condense(lines)
        else:
            self._whole += lines

    def finish(self) -> Excerpt:
        """Return the excerpt."""
        self.feed(b"\n" if self._carry else b"")
        binary = self._odd * 50 > self._seen
        if self._whole is not None:
            rows = self._whole.split(b"\n")[:-1]
            lines = tuple((number, row[:LINE_BYTES]) for number, row in enumerate(rows, 1))
            return Excerpt(lines, len(rows), whole=True, binary=binary)
        kept = dict((*self._head.lines, *self._tables.lines, *self._tail))
        return Excerpt(tuple(sorted(kept.items())), self._number, whole=False, binary=binary)

    def _complete(self, block: bytes) -> bytes:
        """Return the lines that are complete now; of one without an end only its beginning is kept."""
        if self._dropping:
            end = block.find(b"\n")
            if end < 0:
                return b""
            block, self._dropping = block[end:], False
        data = self._carry + block
        cut = data.rfind(b"\n") + 1
        self._carry = data[cut:]
        if len(self._carry) > LINE_BYTES:
            self._carry, self._dropping = self._carry[:LINE_BYTES], True
        return data[:cut]

    def _condense(self, block: bytes) -> None:
        shapes = block.translate(_LOWER, _VARYING).split(b"\n")
        begin = self._number
        self._number += len(shapes) - 1
        new = set(shapes) - self._dull
        xids = {key for key in _XID.findall(block) if self._xids[key] < _OF_AN_XID}
        wanted = self._wanted(block.lower()) if new else ()
        if new and not wanted and len(self._dull) < _SHAPES:
            self._dull |= new
        if not (self._listing or xids or wanted):
            return
        for offset, (shape, line) in enumerate(zip(shapes, block.split(b"\n"), strict=True), 1):
            if self._listing or shape in new or (xids and b"Xid" in line):
                self._look(begin + offset, shape, line[:LINE_BYTES], wanted)

    def _wanted(self, lowered: bytes) -> tuple[bytes, ...]:
        """Return the words of interest that stand anywhere in a block."""
        words = (*_RARE, *_COMMON) if self._head.left > LINE_BYTES else _RARE
        return tuple(word for word in words if word in lowered)

    def _look(self, number: int, shape: bytes, line: bytes, wanted: tuple[bytes, ...]) -> None:
        """Keep a line that is worth it, and remember the shape of one that is not."""
        if self._listing:
            self._listing = self._listing - 1 if _IN_LISTING.match(line) else 0
            if self._listing and self._tables.take(number, line):
                return
        if _LISTING.search(line):
            self._listing = _LISTING_LINES
        lowered = line.lower()
        if not any(word in lowered for word in wanted) and not _XID.search(line):
            self._bore(shape)
        elif _TABLE.match(line):
            self._tables.take(number, line)
        elif self._often(shape, line):
            self._bore(shape)  # the numbers of Xids are watched apart
        elif not self._head.take(number, line):
            self._keep_last(number, line)

    def _bore(self, shape: bytes) -> None:
        if len(self._dull) < _SHAPES:
            self._dull.add(shape)

    def _often(self, shape: bytes, line: bytes) -> bool:
        """Tell whether enough lines like this one were kept; of Xids the number tells them apart."""
        found = _XID.search(line)
        if found:
            self._xids[found[1], found[2]] += 1
            return self._xids[found[1], found[2]] > _OF_AN_XID
        if len(self._hot) < _SHAPES:
            self._hot[shape] += 1
        return self._hot[shape] > _OF_A_SHAPE

    def _keep_last(self, number: int, line: bytes) -> None:
        self._tail.append((number, line))
        self._tail_bytes += len(line)
        while self._tail_bytes > _TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft()[1])


def condense(blocks: Iterable[bytes]) -> Excerpt:
    """Return the excerpt of a text that comes in blocks."""
    condenser = Condenser()
    for block in blocks:
        condenser.feed(block)
    return condenser.finish()
