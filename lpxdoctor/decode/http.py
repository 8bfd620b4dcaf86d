"""Bytes of an HTTP/1.1 response in, however they were split, its status, headers and body bytes out."""

import re

from lpxdoctor.errors import MeasureError

_HEAD_LIMIT = 1 << 16
# Strict, where int(text, 16) would take signs, underscores and spaces.
_CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_CHUNK_HEAD_LIMIT = 1 << 12
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\Z")


class ProtocolError(MeasureError):
    """What came is not an HTTP/1.1 response, or not a stream of events."""


class Response:
    """One response, parsed as it comes.

    status is 0 until the head is complete, header names are in lower case, complete tells that the body has ended.
    """

    __slots__ = (
        "_buffer",
        "_chunked",
        "_closing",
        "_has_body",
        "_left",
        "_to_the_end",
        "complete",
        "headers",
        "status",
    )

    def __init__(self, *, has_body: bool = True) -> None:
        """Expect a response; one that grants CONNECT has no body, whatever its headers say."""
        self._has_body = has_body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self._buffer = b""
        self._chunked = False
        self._closing = False  # the line end behind a chunk's data is still to come
        self._left = 0  # bytes of the chunk, or of the body with Content-Length, still to come
        self._to_the_end = False  # the body ends with the connection

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection can carry another request after this response."""
        return not self._to_the_end and self.headers.get("connection", "").lower() != "close"

    @property
    def is_between_chunks(self) -> bool:
        """Whether the next byte is the first of a chunk's head."""
        return self._chunked and not (self._left or self._closing or self._buffer or self.complete)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes from the connection and return the body bytes among them.

        Raises:
            ProtocolError: they cannot be part of an HTTP/1.1 response.
        """
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        if not self.status:
            rest = self._head(data)
            if rest is None:
                return b""
            data = rest
        if not self._chunked:
            return self._plain(data)
        return self._chunks(data)

    def end(self) -> None:
        """Note that the connection has ended; complete is true afterwards if the body was."""
        self.complete = self.complete or (bool(self.status) and self._to_the_end)

    def _head(self, data: bytes) -> bytes | None:
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > _HEAD_LIMIT:
                    raise ProtocolError(f"The response has no end of headers within {_HEAD_LIMIT} bytes.")
                self._buffer = data
                return None
            lines, data = data[:end].split(b"\r\n"), data[end + 4 :]
            match = _STATUS_LINE.match(lines[0])
            if match is None:
                raise ProtocolError(f"The response does not begin with an HTTP/1.1 status line: {lines[0][:80]!r}")
            status = int(match[1])
            if status >= 200:  # 1xx are interim and followed by the real one
                break
        self.status = status
        self._read_headers(lines[1:])
        return data

    def _read_headers(self, lines: list[bytes]) -> None:
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise ProtocolError(f"A header without a colon: {line[:80]!r}")
            self.headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        if self.status in (204, 304) or (self.status < 300 and not self._has_body):
            self._chunked, self.complete = False, True
        elif self._chunked:
            return
        elif length is None:
            self._to_the_end = True
        elif length.isascii() and length.isdigit() and len(length) < 16:
            self._left = int(length)
            self.complete = self._left == 0
        else:
            raise ProtocolError(f"Content-Length is no number: {length[:80]!r}")

    def _plain(self, data: bytes) -> bytes:
        if self._to_the_end:
            return data
        if len(data) > self._left:
            raise ProtocolError(f"{len(data) - self._left} bytes came after the end of the response.")
        self._left -= len(data)
        self.complete = self._left == 0
        return data

    def _chunks(self, data: bytes) -> bytes:
        body: list[bytes] = []
        position = 0
        while position < len(data):
            if self._left:
                piece = data[position : position + self._left]
                body.append(piece)
                position += len(piece)
                self._left -= len(piece)
                self._closing = not self._left
            elif self._closing:
                if data[position:] == b"\r":
                    break
                if not data.startswith(b"\r\n", position):
                    raise ProtocolError("A chunk does not end where its size says.")
                position += 2
                self._closing = False
            elif (after := self._chunk_head(data, position)) is None:
                break
            else:
                position = after
        self._buffer = data[position:]
        return body[0] if len(body) == 1 else b"".join(body)

    def _chunk_head(self, data: bytes, position: int) -> int | None:
        """Take the size of the next chunk, or the end of them all; return where it ends, None when not all is here."""
        if self.complete:
            raise ProtocolError(f"{len(data) - position} bytes came after the end of the response.")
        match = _CHUNK_HEAD.match(data, position)
        if match is None:
            line = data[position : position + _CHUNK_HEAD_LIMIT]
            if b"\n" in line or len(line) == _CHUNK_HEAD_LIMIT:
                raise ProtocolError(f"A chunk does not begin with its size: {line[:80]!r}")
            return None
        self._left = int(match[1], 16)
        if self._left:
            return match.end()
        end = self._trailer_end(data, match.end())
        self.complete = end is not None
        return end

    @staticmethod
    def _trailer_end(data: bytes, start: int) -> int | None:
        if data.startswith(b"\r\n", start):
            return start + 2
        end = data.find(b"\r\n\r\n", start)
        if end < 0:
            if len(data) - start > _HEAD_LIMIT:
                raise ProtocolError(f"The response has no end of trailers within {_HEAD_LIMIT} bytes.")
            return None
        return end + 4
