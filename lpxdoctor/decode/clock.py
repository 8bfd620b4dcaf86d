"""The two clocks of a measurement: the monotonic one everything is told in, and the wall clock the kernel stamps in."""

import socket
import struct
import sys
import time
from dataclasses import dataclass

# SO_TIMESTAMPNS of the generic socket ABI (x86-64, arm64, riscv64, ppc64le, s390x): the answer is a struct timespec of
# two 64-bit numbers in CLOCK_REALTIME, the receive time of the last byte read. TCP has it since Linux 4.14.
# Source: https://www.kernel.org/doc/Documentation/networking/timestamping.rst
_STAMP_OPTION = 35
_TIMESPEC = struct.Struct("qq")
STAMP_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)
_TRIES = 25


@dataclass(frozen=True)
class Offset:
    """Wall clock minus monotonic clock, in nanoseconds, known to within error_ns."""

    ns: int
    error_ns: int


def offset() -> Offset:
    """Measure how far the wall clock is from the monotonic one now."""
    best = Offset(0, 1 << 62)
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if (after - before) // 2 < best.error_ns:
            best = Offset(wall - (before + after) // 2, (after - before) // 2)
    return best


def ask_for_stamps(connection: socket.socket) -> None:
    """Have the kernel stamp what this socket receives; where it cannot, reads come without a stamp."""
    if sys.platform == "linux" and sys.maxsize > 1 << 32:
        connection.setsockopt(socket.SOL_SOCKET, _STAMP_OPTION, 1)


def stamp(control: list[tuple[int, int, bytes]]) -> int | None:
    """Return the receive time, in nanoseconds of the wall clock, from recvmsg's control messages.

    They hold nothing but stamps: no other kind was asked for.
    """
    if not control or len(control[0][2]) != _TIMESPEC.size:
        return None
    seconds, nanoseconds = _TIMESPEC.unpack(control[0][2])
    told_ns: int = seconds * 1_000_000_000 + nanoseconds
    return told_ns
