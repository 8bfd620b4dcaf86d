"""One connection to the server: bytes in and out without ever blocking, each read with its arrival time."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable
from typing import Protocol

from lpxdoctor.decode.clock import STAMP_SPACE, ask_for_stamps, stamp
from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.decode.proxy import Tunnel

_READ_BYTES = 1 << 13  # room for many chunks; a larger buffer is taken from the system and given back at each read


class Tls(Protocol):
    """What a connection needs of TLS; lpxdoctor.decode.tls has it."""

    began: bool

    def take(self, content: bytes) -> None: ...  # noqa: D102
    def handshake(self) -> bool: ...  # noqa: D102
    def outgoing(self) -> bytes: ...  # noqa: D102
    def encrypt(self, content: bytes) -> bytes: ...  # noqa: D102
    def decrypt(self, content: bytes) -> bytes | None: ...  # noqa: D102


def tls_maker(endpoint: Endpoint) -> Callable[[], Tls] | None:
    """Return what makes the TLS side of each connection, None for http.

    Raises:
        MeasureError: this machine's certificates cannot be loaded.
    """
    if endpoint.scheme != "https":
        return None
    from lpxdoctor.decode.tls import maker  # noqa: PLC0415 - ssl takes a tenth of the start-up and is rarely needed

    return maker(endpoint.host)


class Transport:
    """A TCP connection, with TLS where the endpoint's URL says so.

    TLS runs over memory buffers, so that the socket, and with it the kernel's receive time, stays in our hands.
    """

    def __init__(self, endpoint: Endpoint, offset_ns: int, tls: Tls | None) -> None:
        """Begin to connect; offset_ns is the wall clock's lead over the monotonic one.

        Raises:
            OSError: the connection was refused at once.
        """
        self.ready = False
        self.has_answered = False  # a request before this one
        self.arrived_ns = 0  # of the last read: when it arrived, and when the program had it
        self.read_ns = 0
        self.stamped = False  # whether the kernel told the arrival time of the last read
        self._offset_ns = offset_ns
        self._unsent = b""
        self._tls = tls
        tunnelled = endpoint.proxy if endpoint.scheme == "https" else None
        self._tunnel = Tunnel(tunnelled, endpoint.netloc) if tunnelled else None
        self._socket = socket.socket(endpoint.family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(self._socket)
        code = self._socket.connect_ex(endpoint.connects_to)
        if code not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise OSError(code, os.strerror(code))

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether there is something to do when the socket becomes writable."""
        began = self.ready or (self._tls and self._tls.began) or (self._tunnel and self._tunnel.began)
        return bool(self._unsent) or not began

    def progress(self) -> None:
        """Carry the connection or a half-sent request on; ready is true when requests can be sent.

        Raises:
            OSError: the connection failed, the proxy refused, or the TLS handshake failed.
        """
        if self.ready:
            self._flush()
            return
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self._tunnel and not self._tunnel.is_open:
            self._open(self._tunnel)
            if not self._tunnel.is_open:
                return
        if self._tls is None:
            self.ready = True
            return
        if self._tls.began and not self._unsent:
            with contextlib.suppress(BlockingIOError):
                self._tls.take(self._socket.recv(_READ_BYTES))
        self.ready = self._tls.handshake()
        self._unsent += self._tls.outgoing()
        self._flush()

    def _open(self, tunnel: Tunnel) -> None:
        if not tunnel.began:
            self._unsent = tunnel.request()
        elif not self._unsent:
            with contextlib.suppress(BlockingIOError):
                tunnel.take(self._socket.recv(_READ_BYTES))
        self._flush()

    def prepare(self, request: bytes) -> bytes:
        """Return the bytes that carry a request: itself, or encrypted."""
        return self._tls.encrypt(request) if self._tls else request

    def send(self, prepared: bytes) -> None:
        """Send what prepare() returned, the rest of it when the socket becomes writable.

        Raises:
            OSError: the connection is gone.
        """
        self._unsent = prepared
        self._flush()

    def receive(self) -> bytes | None:
        """Return what has arrived: b"" when the server has ended the connection, None when nothing has.

        Raises:
            OSError: the connection is gone.
        """
        try:
            content, control, _, _ = self._socket.recvmsg(_READ_BYTES, STAMP_SPACE)
        except BlockingIOError:
            return None
        self.read_ns = time.monotonic_ns()
        wall_ns = stamp(control)
        self.stamped = wall_ns is not None
        self.arrived_ns = self.read_ns if wall_ns is None else wall_ns - self._offset_ns
        return self._tls.decrypt(content) if self._tls else content

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]
