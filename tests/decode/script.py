"""What a scripted OpenAI-compatible server says: a script and a request in, refusals and the events of a stream out."""

from dataclasses import dataclass
from typing import Any


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


def refusal(script: Script, body: dict[str, Any]) -> tuple[int, object] | None:
    """Return the status and the answer to a request with something in it that this server does not take."""
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


def chunk(
    script: Script, body: dict[str, Any], text: str, reason: str | None, sent: int, number: int
) -> dict[str, Any]:
    """Return the event with the number-th chunk of an answer, after which so many tokens are sent."""
    told = sent if body.get("stream_options", {}).get("continuous_usage_stats") and script.tells_usage else None
    if "messages" in body:
        delta = {"reasoning_content" if number < script.reasons else "content": text}
        if script.ends_bare and not text:
            delta = {}
        return chat_chunk({"role": "assistant", **delta} if script.role_on == "every" else delta, reason, told)
    event: dict[str, Any] = {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": reason}]}
    return event if told is None else {**event, "usage": {"prompt_tokens": 1, "completion_tokens": told}}


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
