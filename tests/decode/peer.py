"""A streaming OpenAI-compatible server with a script: it keeps an absolute schedule and tells when it really wrote.

Run as a program it serves until its stdin ends: `python -m tests.decode.peer SCRIPT-AS-JSON` prints its port.
"""

import asyncio
import gzip
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.beside import beside
from tests.decode.closing import close
from tests.decode.script import Script, chat_chunk, chunk, length_of, prompt_length, refusal

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Seen:
    """One completion request: its body, when it was read, and before and after each chunk was written; monotonic."""

    body: dict[str, Any]
    received_ns: int
    writes_ns: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


class Peer:
    """The server's state; url is valid once it serves."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.url = ""
        self.seen: list[Seen] = []
        self.pages: list[str] = []  # that were asked for besides completions
        self.under_way = 0
        self.most_at_once = 0
        self._counters = {"generation_tokens": 0, "prefix_cache_queries": 0.0, "prefix_cache_hits": 0.0}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                while await self._request(reader, writer):
                    pass
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
        except asyncio.CancelledError:  # the test is over; streams of asyncio would print this as an error
            pass
        finally:
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        received_ns = time.monotonic_ns()
        method, path, _ = head.split("\r\n")[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if self.script.api_key and headers.get("authorization") != f"bearer {self.script.api_key}".lower():
            return await self._answer(writer, 401, {"error": "Unauthorized"})
        if method == "POST" and path.endswith(tuple(self.script.has)):
            return await self._completion(writer, json.loads(body), received_ns)
        self.pages.append(path)
        content = self._page(path)
        return await self._answer(writer, 404 if content is None else 200, content)

    def _page(self, path: str) -> object:
        if path.endswith("/v1/models"):
            length = self.script.max_model_len
            return {"data": [{"id": name, "root": name, "max_model_len": length} for name in self.script.models]}
        if path.endswith("/metrics") and self.script.has_metrics:
            return self._metrics()
        if path.endswith("/seen"):
            return [[seen.received_ns, *seen.writes_ns] for seen in self.seen]
        return {"version": "9.9.9"} if path.endswith("/version") else None

    def _metrics(self) -> str:
        cache = 'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="4096",engine="0"} 1.0'
        lines = [f'vllm:{name}_total{{engine="0"}} {value}' for name, value in self._counters.items()]
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        lines += [f'vllm:{name}{{engine="0"}} {value}' for name, value in zip(names, self.script.gauges, strict=False)]
        return "# HELP x y\n" + "\n".join([*lines, cache, 'vllm:num_preemptions_total{engine="0"} 0.0']) + "\n"

    async def _answer(self, writer: asyncio.StreamWriter, status: int, content: object) -> bool:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        headers = "".join(f"{header}\r\n" for header in self.script.headers)
        writer.write(f"HTTP/1.1 {status} Said\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return True

    async def _completion(self, writer: asyncio.StreamWriter, body: dict[str, Any], received_ns: int) -> bool:
        script = self.script
        fault = script.fault if script.fault_on is None or len(self.seen) in script.fault_on else ""
        self.seen.append(Seen(body, received_ns))
        if refused := refusal(self.script, body):
            return await self._answer(writer, *refused)
        if fault.startswith("http-"):
            return await self._answer(writer, int(fault[5:]), {"error": "scripted"})
        if fault in ("html", "gzip"):
            return await self._page_instead(writer, fault)
        if fault == "no-stream":
            return await self._answer(writer, 200, {"choices": [], "usage": None})
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        try:
            return await self._stream(writer, self.seen[-1], fault)
        finally:
            self.under_way -= 1

    async def _page_instead(self, writer: asyncio.StreamWriter, fault: str) -> bool:
        content = b"<html><title>Sign in</title></html>"
        kind = "Content-Type: text/html"
        if fault == "gzip":
            content, kind = gzip.compress(b'data: {"choices":[{"text":"a"}]}\n\n'), "Content-Encoding: gzip"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        return True

    async def _stream(self, writer: asyncio.StreamWriter, seen: Seen, fault: str) -> bool:
        script, body = self.script, seen.body
        connection = "" if script.keeps_alive else "Connection: close\r\n"
        head = f"HTTP/1.1 200 OK\r\n{connection}Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        wanted = length_of(body)
        if script.answer_tokens and body.get("min_tokens", 0) < wanted:
            wanted = min(wanted, script.answer_tokens)
        if "messages" in body and script.role_on == "first":
            self._event(writer, chat_chunk({"role": "assistant", "content": ""}, None, 0))
        sent = number = 0
        due_ns = seen.received_ns + int(script.ttft_s * 1e9)
        while sent < wanted:
            await asyncio.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            due_ns += int(script.gap_s * 1e9)
            if fault and number == script.fault_after and not await self._fault(writer, fault):
                return False
            if script.empty_chunks:
                self._event(writer, chunk(script, body, "", None, sent, number))
            sent = min(wanted, sent + (script.tokens_per_chunk if number else script.first_chunk_tokens))
            ends = sent == wanted and not script.ends_in_own_chunk
            began_ns = time.monotonic_ns()
            self._event(writer, chunk(script, body, script.text, "length" if ends else None, sent, number))
            await writer.drain()
            seen.writes_ns.append((began_ns, time.monotonic_ns()))
            number += 1
        self._finish(writer, body, sent)
        await writer.drain()
        return script.keeps_alive and not script.ends_unsaid

    def _finish(self, writer: asyncio.StreamWriter, body: dict[str, Any], sent: int) -> None:
        if self.script.ends_in_own_chunk:
            self._event(writer, chunk(self.script, body, "", "length", sent, sent))
        prompt = self.script.prompt_tokens or prompt_length(body) * self.script.tokens_per_word
        self._counters["generation_tokens"] += sent + self.script.foreign_tokens
        self._counters["prefix_cache_queries"] += prompt
        self._counters["prefix_cache_hits"] += prompt * self.script.cached_share
        if self.script.tells_usage and body.get("stream_options"):
            usage = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
            self._event(writer, {"choices": [], "usage": usage})
        self._raw(writer, "data: [DONE]")
        writer.write(f"0\r\n{self.script.trailer}\r\n".encode())

    async def _fault(self, writer: asyncio.StreamWriter, fault: str) -> bool:
        """Do the scripted fault; tell whether the stream goes on."""
        if fault == "stall":
            await asyncio.sleep(3600)
        while fault == "pings":
            self._raw(writer, ": ping")
            await writer.drain()
            await asyncio.sleep(0.05)
        if fault == "reset":
            writer.transport.abort()
        if fault == "malformed":
            writer.write(b"zz\r\nnot a chunk\r\n")
            await writer.drain()
        if fault == "error-event":
            self._event(writer, {"error": {"message": "scripted", "code": 500}})
            self._raw(writer, "data: [DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return False

    def _event(self, writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
        if self.script.comments:
            self._raw(writer, ": keep-alive")
        separators = None if self.script.spaced else (",", ":")
        self._raw(writer, "data: " + json.dumps(content, separators=separators, ensure_ascii=False))

    def _raw(self, writer: asyncio.StreamWriter, text: str) -> None:
        event = f"{text}{self.script.line_end}{self.script.line_end}".encode()
        size = self.script.piece_bytes or len(event)
        for piece in (event[start : start + size] for start in range(0, len(event), size)):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))


async def _serve(peer: Peer, tls: ssl.SSLContext | None, ready: "threading.Event", stop: asyncio.Event) -> None:
    server = await asyncio.start_server(peer.serve, peer.script.host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    host = f"[{peer.script.host}]" if ":" in peer.script.host else peer.script.host
    peer.url = f"https://localhost:{port}" if tls else f"http://{host}:{port}"
    ready.set()
    await stop.wait()
    await close(server)


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Generator[Peer]:
    """Serve from a thread while the block lasts."""
    peer, ready, stop, loop = Peer(script), threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    with closing(loop), beside(loop.run_until_complete, _serve(peer, tls, ready, stop)):
        try:
            assert ready.wait(60)
            yield peer
        finally:
            loop.call_soon_threadsafe(stop.set)


@contextmanager
def serving_apart(script: Script) -> Generator[str]:
    """Serve from a process of its own, whose clock readings no thread of ours delays; yield its URL.

    GET /seen there returns a list per completion: when it was received, then the pair of times of each chunk.
    """
    argv = (sys.executable, "-m", "tests.decode.peer", json.dumps(asdict(script)))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    with serving(Script(**json.loads(sys.argv[1]))) as started:
        print(started.url, flush=True)
        sys.stdin.read()
