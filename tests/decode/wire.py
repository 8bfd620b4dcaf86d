"""A server that answers completions with given bytes, well-formed or not: what a scripted one would never say."""

import json
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from tests.beside import beside

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def tokens(count: int, *, ends: bool = True) -> list[bytes]:
    """Return the events of an answer of so many tokens; ends: the last one tells why it ends."""
    reasons = [None] * (count - 1) + ["length" if ends else None]
    return [event({"choices": [{"index": 0, "text": " x", "finish_reason": reason}]}) for reason in reasons]


def usage(prompt: object = 24, completion: object = 6) -> bytes:
    """Return the event with the token counts."""
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def event(content: object) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunked(*body: bytes) -> list[bytes]:
    """Return a whole response with this body, a piece per HTTP chunk."""
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body]
    return [EVENT_STREAM + b"Transfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n"]


class Wire:
    """The server's state; over ends it."""

    def __init__(self, answer: Sequence[bytes], *, pause_s: float, closes: bool, forever: bool, to_all: bool) -> None:
        self.over = threading.Event()
        self._answer, self._pause_s = answer, pause_s
        self._closes, self._forever, self._to_all = closes, forever, to_all

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection."""
        with connection, suppress(OSError):
            connection.settimeout(60)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.over.is_set() and (request := _read(connection)):
                if not (self._to_all or request.startswith(b"POST")):
                    connection.sendall(_page(request))
                    continue
                for piece in self._answer:
                    connection.sendall(piece)
                    self.over.wait(self._pause_s)
                while self._forever and not self.over.is_set():
                    connection.sendall(self._answer[-1])
                if self._closes:
                    return


def _read(connection: socket.socket) -> bytes:
    """Return one request, b"" at the end of the connection."""
    content = b""
    while b"\r\n\r\n" not in content:
        if not (more := connection.recv(1 << 16)):
            return b""
        content += more
    head, _, body = content.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head


def _page(request: bytes) -> bytes:
    found = b"/v1/models" in request
    body = b'{"data":[{"id":"peer"}]}' if found else b""
    return b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (200 if found else 404, len(body), body)


@contextmanager
def answering(
    *answer: bytes, pause_s: float = 0.002, closes: bool = False, forever: bool = False, to_all: bool = False
) -> Generator[str]:
    """Serve while the block lasts and yield the URL; each completion gets these pieces with a pause between them.

    closes: then the connection ends; forever: the last piece is sent again and again; to_all: every request gets them.
    """
    wire = Wire(answer, pause_s=pause_s, closes=closes, forever=forever, to_all=to_all)
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as connections:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connections.enter_context(beside(wire.serve, server.accept()[0]))

        with beside(accept):
            try:
                yield f"http://127.0.0.1:{server.getsockname()[1]}"
            finally:
                wire.over.set()
                server.shutdown(socket.SHUT_RDWR)
