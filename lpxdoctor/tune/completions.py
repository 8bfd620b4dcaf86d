"""A prompt in, what an engine answers greedily or how likely it holds each token of the prompt out; over plain HTTP."""

import http.client
import json
import math
from typing import Any

import msgspec

from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.errors import MeasureError

_TIMEOUT_S = 120


class Said(msgspec.Struct, frozen=True):
    """Tokens as the engine spells them, with their log-probabilities; none of these where it does not tell them."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]


def answered(there: Endpoint, model: str, prompt: str, tokens: int) -> Said:
    """Return the greedy answer of so many tokens.

    Raises:
        MeasureError: the engine does not answer, or not with log-probabilities.
    """
    return _asked(there, {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 0})


def scored(there: Endpoint, model: str, prompt: str) -> Said:
    """Return the prompt's own tokens but the first, each with its log-probability after those before it.

    Raises:
        MeasureError: the engine does not answer, or does not echo prompts.
    """
    wish = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 0, "echo": True}
    said = _asked(there, wish)
    if len(said.tokens) < 3:
        raise MeasureError(f"{there.url} does not echo prompts with their log-probabilities.")
    return Said(said.tokens[1:-1], said.logprobs[1:-1])  # the first has none, the last is the answer


def _asked(there: Endpoint, wish: dict[str, Any]) -> Said:
    status, body = _post(there, json.dumps({**wish, "stream": False}).encode())
    if status != 200:
        raise MeasureError(f"{there.url} refused a prompt of the regression set (HTTP {status}): {_short(body)}")
    try:
        told = json.loads(body)["choices"][0]["logprobs"]
        logprobs = tuple(math.nan if one is None else float(one) for one in told["token_logprobs"])
        return Said(tuple(map(str, told["tokens"])), logprobs)
    except (ValueError, LookupError, TypeError):
        raise MeasureError(f"{there.url} answers without log-probabilities: {_short(body)}") from None


def _post(there: Endpoint, body: bytes) -> tuple[int, bytes]:
    kind = http.client.HTTPSConnection if there.scheme == "https" else http.client.HTTPConnection
    connection = kind(there.host, there.port, timeout=_TIMEOUT_S)
    headers = {"Content-Type": "application/json"}
    if there.api_key:
        headers["Authorization"] = f"Bearer {there.api_key}"
    try:
        connection.request("POST", f"{there.prefix}/v1/completions", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise MeasureError(f"{there.url} did not answer a prompt of the regression set: {error}") from None
    finally:
        connection.close()


def _short(body: bytes) -> str:
    return body[:200].decode(errors="replace").strip()
