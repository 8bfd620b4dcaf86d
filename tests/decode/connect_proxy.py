"""A real HTTP proxy on loopback for tests: CONNECT tunnels and passed-on requests, with a password if one is set.

Whatever name a server has, it is looked for on loopback: names that only the proxy knows.
"""

import asyncio
import base64
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.beside import beside
from tests.decode.closing import close


@dataclass
class Proxy:
    """What it is and what it has seen: the first line of every request that it was sent itself."""

    login: str = ""
    refusal: int = 0
    url: str = ""
    seen: list[str] = field(default_factory=list[str])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._request(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.seen.append(f"{method} {target}")
        expected = b"Proxy-Authorization: Basic " + base64.b64encode(self.login.encode())
        status = self.refusal or (407 if self.login and expected not in head else 0)
        if status:
            writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
            return await writer.drain()
        there = urlsplit(f"//{target}" if method == "CONNECT" else target)
        back, forth = await asyncio.open_connection("127.0.0.1", there.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
        else:  # the one server of the test: what follows on this connection goes there too
            forth.write(head.replace(target.encode(), (there.path or "/").encode(), 1))
        ways = [asyncio.create_task(pump(reader, forth)), asyncio.create_task(pump(back, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            forth.transport.abort()
            with suppress(ConnectionError):
                await forth.wait_closed()
        return None


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy until the source ends."""
    while content := await source.read(1 << 16):
        sink.write(content)
        await sink.drain()


@contextmanager
def proxying(login: str = "", refusal: int = 0) -> Generator[Proxy]:
    """Serve from a thread while the block lasts."""
    proxy, ready, loop = Proxy(login, refusal), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        proxy.url = f"http://{login + '@' if login else ''}127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        await close(server)

    with closing(loop), beside(loop.run_until_complete, serve()):
        try:
            assert ready.wait(60)
            yield proxy
        finally:
            loop.call_soon_threadsafe(stop.set)
