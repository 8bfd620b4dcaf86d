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
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the server does.

    Faults are "http-NNN", "no-stream", "html", "gzip", and in a stream "cut", "reset", "stall", "pings", "error-event",
    "malformed".
    """

    ttft_s: float = 0.01
    gap_s: float = 0.002
    tokens_per_chunk: int = 1
    first_chunk_tokens: int = 1
    fault: str = ""
    fault_on: tuple[int, ...] | None = None  # which completions, from 0; None: all
    fault_after: int = 2  # chunks
    headers: tuple[str, ...] = ()  # of every answer that is no stream
    trailer: str = ""
    text: str = " x"  # of every token
    piece_bytes: int = 0  # writes events in pieces of so many bytes
    empty_chunks: bool = False  # one before every token
    host: str = "127.0.0.1"
    takes_token_ids: bool = True
    takes_chunk_usage: bool = True
    refused: tuple[str, ...] = ()  # members that it answers with 400
    names_refused: bool = True
    hint: str = ""  # behind the name
    has: tuple[str, ...] = ("/v1/completions", "/v1/chat/completions")
    role_on: str = "first"  # chunk of a chat: "first" (without text, as vLLM), "every"
    reasons: int = 0  # so many chunks of a chat are reasoning
    ends_bare: bool = False  # a chat's finish reason comes with an empty delta, as from llama.cpp
    tells_usage: bool = True
    answer_tokens: int = 0  # ends every answer there, unless min_tokens asks for more
    takes_min_tokens: bool = True
    tokens_per_word: int = 1  # of a prompt
    prompt_tokens: int = 0  # tells this instead of what it got
    ends_in_own_chunk: bool = False
    line_end: str = "\n"
    spaced: bool = False  # JSON with spaces, as Python writes it
    comments: bool = False  # keep-alive comments between events
    keeps_alive: bool = True
    ends_unsaid: bool = False  # ends the connection after a stream without having said so, as llama.cpp does
    api_key: str = ""
    models: tuple[str, ...] = ("peer",)
    max_model_len: int | None = 4096
    has_metrics: bool = True
    cached_share: float = 0.0
    foreign_tokens: int = 0  # per request, for somebody else
    gauges: tuple[float, ...] = ()  # running, waiting, share of the KV cache; () tells none


@dataclass
class Seen:
    """One completion request: its body, when it was read and when each chunk was written, on the monotonic clock."""

    body: dict[str, Any]
    received_ns: int
    writes_ns: list[int] = field(default_factory=list[int])


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
        if refused := self._refused(body):
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

    def _refused(self, body: dict[str, Any]) -> tuple[int, object] | None:
        """Return the status and the answer to a request with something in it that this server does not take."""
        script = self.script
        if isinstance(body.get("prompt"), list) and not script.takes_token_ids:
            return 422, {"error": "prompt: str type expected"}
        named = [name for name in script.refused if name in body]
        if "continuous_usage_stats" in body.get("stream_options", {}) and not script.takes_chunk_usage:
            named.append("continuous_usage_stats")
        if "min_tokens" in body and not script.takes_min_tokens:
            named.append("min_tokens")
        if not named:
            return None
        said = f"{named[0]}: extra fields not permitted {script.hint if named[0] == 'max_tokens' else ''}"
        return 400, {"error": said if script.names_refused else "bad request"}

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
                self._event(writer, self._chunk(body, "", None, sent, number))
            sent = min(wanted, sent + (script.tokens_per_chunk if number else script.first_chunk_tokens))
            ends = sent == wanted and not script.ends_in_own_chunk
            self._event(writer, self._chunk(body, script.text, "length" if ends else None, sent, number))
            await writer.drain()
            seen.writes_ns.append(time.monotonic_ns())
            number += 1
        self._finish(writer, body, sent)
        await writer.drain()
        return script.keeps_alive and not script.ends_unsaid

    def _finish(self, writer: asyncio.StreamWriter, body: dict[str, Any], sent: int) -> None:
        if self.script.ends_in_own_chunk:
            self._event(writer, self._chunk(body, "", "length", sent, sent))
        prompt = self.script.prompt_tokens or prompt_length(body) * self.script.tokens_per_word
        self._counters["generation_tokens"] += sent + self.script.foreign_tokens
        self._counters["prefix_cache_queries"] += prompt
        self._counters["prefix_cache_hits"] += prompt * self.script.cached_share
        if self.script.tells_usage and body.get("stream_options"):
            usage = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
            self._event(writer, {"choices": [], "usage": usage})
        self._raw(writer, "data: [DONE]")
        writer.write(f"0\r\n{self.script.trailer}\r\n".encode())

    def _chunk(self, body: dict[str, Any], text: str, reason: str | None, sent: int, number: int) -> dict[str, Any]:
        script = self.script
        told = sent if body.get("stream_options", {}).get("continuous_usage_stats") and script.tells_usage else None
        if "messages" in body:
            delta = {"reasoning_content" if number < script.reasons else "content": text}
            if script.ends_bare and not text:
                delta = {}
            return chat_chunk({"role": "assistant", **delta} if script.role_on == "every" else delta, reason, told)
        event: dict[str, Any] = {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": reason}]}
        return event if told is None else {**event, "usage": {"prompt_tokens": 1, "completion_tokens": told}}

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


def length_of(body: dict[str, Any]) -> int:
    """Return how many tokens a request asks for."""
    return int(body.get("max_tokens") or body["max_completion_tokens"])


def prompt_length(body: dict[str, Any]) -> int:
    """Count a request's prompt: token ids, or words."""
    prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
    return len(prompt if isinstance(prompt, list) else prompt.split())


def chat_chunk(delta: dict[str, str], reason: str | None, told: int | None) -> dict[str, Any]:
    """Return an event of a chat; told is a running token count."""
    event: dict[str, Any] = {"id": "chat-1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return event if told is None else {**event, "usage": {"prompt_tokens": 1, "completion_tokens": told}}


async def _serve(peer: Peer, tls: ssl.SSLContext | None, ready: "threading.Event", stop: asyncio.Event) -> None:
    server = await asyncio.start_server(peer.serve, peer.script.host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    host = f"[{peer.script.host}]" if ":" in peer.script.host else peer.script.host
    peer.url = f"https://localhost:{port}" if tls else f"http://{host}:{port}"
    ready.set()
    await stop.wait()
    server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.sleep(0)  # transports that were aborted close their sockets now


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Generator[Peer]:
    """Serve from a thread while the block lasts."""
    peer, ready, stop, loop = Peer(script), threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_serve(peer, tls, ready, stop)))
    thread.start()
    try:
        assert ready.wait(10)
        yield peer
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@contextmanager
def serving_apart(script: Script) -> Generator[str]:
    """Serve from a process of its own, whose clock readings no thread of ours delays; yield its URL.

    GET /seen there returns a list per completion: when it was received, then when each chunk was written.
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
