"""TLS between memory buffers: encrypted bytes in, plain ones out, and the other way round, with no socket in it."""

import errno
import ssl
from collections.abc import Callable

from lpxdoctor.errors import MeasureError

_READ_BYTES = 1 << 16


def maker(host: str) -> Callable[[], "Session"]:
    """Return what makes one connection's session, checked against this machine's certificates.

    Raises:
        MeasureError: they cannot be loaded.
    """
    try:
        context = ssl.create_default_context()
    except (OSError, ssl.SSLError) as error:
        raise MeasureError(f"The certificates to check {host} against cannot be loaded: {error}.") from None
    return lambda: Session(context, host)


class Session:
    """One connection's TLS; the caller moves the encrypted bytes."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_hostname=host)
        self.began = False

    def take(self, content: bytes) -> None:
        """Take encrypted bytes of the handshake; none means that the connection ended."""
        if content:
            self._in.write(content)
        else:
            raise ConnectionResetError(errno.ECONNRESET, "the server ended the TLS handshake")

    def handshake(self) -> bool:
        """Go on with the handshake as far as the bytes go; tell whether it is complete."""
        self.began = True
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def outgoing(self) -> bytes:
        """Return the encrypted bytes to send."""
        return self._out.read()

    def encrypt(self, content: bytes) -> bytes:
        """Return the encrypted form of content."""
        self._object.write(content)
        return self._out.read()

    def decrypt(self, content: bytes) -> bytes | None:
        """Return the plain bytes that are complete with these: None for none yet, b"" at the end."""
        if not content:
            return b""
        self._in.write(content)
        pieces: list[bytes] = []
        try:
            while piece := self._object.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces) or None
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(pieces)
