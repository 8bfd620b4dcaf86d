"""Answers on the edge of the protocols and beyond it: right numbers, or a reason; no traceback, no wrong number."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from tests.decode.wire import DONE, EVENT_STREAM, answering, chunked, event, tokens, usage

ATTEMPTS = 3  # a client that other tests starve reads at once what came with pauses
BODY = b"".join([*tokens(6), usage(), DONE])
TOO_MANY = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in tokens(50, ends=False))


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def measured(url: str, *options: str) -> int:
    short = ("--concurrency", "1", "--requests", "2", "--input-len", "24", "--output-len", "6")
    return run(["baseline", url, *short, "--format", "json", *options])


def rung_of(out: str) -> dict[str, Any]:
    (rung,) = json.loads(out)["rungs"]
    assert isinstance(rung, dict)
    return rung


@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (chunked(*tokens(6), usage(), DONE), False),
        (chunked(*tokens(6), usage(), DONE), True),  # the server offers to keep the connection and ends it
        ([EVENT_STREAM + b"Content-Length: %d\r\n\r\n" % len(BODY), *tokens(6), usage(), DONE], False),
        ([EVENT_STREAM.replace(b"1.1", b"1.0") + b"\r\n", *tokens(6), usage(), DONE], True),
        ([EVENT_STREAM + b"Connection: close\r\n\r\n", *tokens(6), usage(), DONE], True),
        (chunked(*tokens(6), usage(3, 2), usage(), usage(), DONE), False),  # the last count is the whole one
        (chunked(*tokens(6, ends=False), usage(), DONE), False),  # no finish_reason, but [DONE]
        (chunked(*tokens(6), usage()), False),  # no [DONE], but a finish_reason
        (chunked(b"".join(tokens(2)), *tokens(4), usage() + DONE), False),  # two tokens in one chunk
    ],
    ids=["plain", "ends", "length", "http-1.0", "close", "usage-twice", "no-reason", "no-done", "together"],
)
def test_other_ways_to_send_a_stream_give_its_numbers(
    answer: list[bytes], closes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rung: dict[str, Any] = {}
    with answering(*answer, closes=closes, pause_s=0.01) as url:
        for _ in range(ATTEMPTS):
            assert measured(url) in (0, 1)
            rung = rung_of(capsys.readouterr().out)
            if (rung["tpot_ms"]["p50"] or 0) > 7.5:
                break
    assert (rung["requests"], rung["errors"], rung["output_tokens"], rung["tokens_per_chunk"]) == (2, 0, 6, 1)
    assert rung["prompt_tokens"] == 24
    assert rung["tpot_ms"]["p50"] > 7.5  # four pauses of 10 ms, or five, before the last of six tokens


@pytest.mark.parametrize(
    ("answer", "forever", "said"),
    [
        ([b"HTTP/1.1 200 OK\r\n", b"X-Filler: 1234567890\r\n" * 100], True, "no end of headers"),
        ([chunked()[0], b"FFFFFFFF\r\ndata: ", b"x" * 65536], True, "does not end within"),
        ([chunked()[0], b"FFFFFFFFFFFFFFFF\r\n", b"x"], False, "does not begin with its size"),
        ([chunked()[0], TOO_MANY], True, "endless: 6 tokens were asked for"),
        (chunked(*tokens(6), b'data: {"choices":[],"usage":{"prompt_tokens":\xff\xfe}}\n\n', DONE), False, "malformed"),
        (chunked(*tokens(6), b'data: {"choices":[],"usage":{"prompt_tokens":24,\n\n', DONE), False, "malformed"),
        (chunked(*tokens(6), usage(24, -6), DONE), False, "malformed"),
        (chunked(*tokens(6), usage("many"), DONE), False, "malformed"),
        (chunked(*tokens(6), event({"greeting": 1}), DONE), False, "no part of a completion"),
        (chunked(*tokens(6, ends=False), usage()), False, "without saying why"),
        (chunked(b"[" * 5000), False, "empty"),
        ([EVENT_STREAM + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY, mtime=0)),
          gzip.compress(BODY, mtime=0)], False, "empty: the answer (gzip)"),
        ([EVENT_STREAM + b"Content-Length: 10\r\n\r\n", BODY], False, "came after the end"),
        ([b"HTTP/2 200\r\n\r\n"], False, "does not begin with an HTTP/1.1 status line"),
        ([b"\x16\x03\x01\x02\r\n\r\n"], False, "does not begin with an HTTP/1.1 status line"),
    ],
    ids=["headers", "chunk", "size", "tokens", "utf-8", "json", "negative", "text", "greeting", "cut", "array", "gzip",
         "longer", "http-2", "tls"],
)  # fmt: skip
def test_what_is_no_answer_is_said(
    answer: list[bytes], forever: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(*answer, forever=forever) as url:
        assert measured(url) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Every request to" in captured.err
    assert "Traceback" not in captured.err


def test_more_tokens_than_were_asked_for_are_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    for answer in (chunked(*tokens(6), usage(24, 10**15), DONE), chunked(*tokens(9), usage(24, 9), DONE)):
        with answering(*answer) as url:
            assert measured(url) == 1
        assert "2 of 2 answers have more than 6 tokens" in rung_of(capsys.readouterr().out)["invalid_because"]


def test_a_stream_that_is_held_back_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    body = b"".join([*tokens(16), usage(24, 16), DONE])
    head = EVENT_STREAM + b"Content-Length: %d\r\n\r\n" % len(body)
    with answering(head + body) as url:
        assert measured(url, "--output-len", "16") == 1
    rung = rung_of(capsys.readouterr().out)
    assert rung["output_tokens"] == 16
    assert "2 of 2 answers came all at once" in rung["invalid_because"]


def test_a_prompt_counted_otherwise_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(*chunked(*tokens(6), usage(5), DONE)) as url:
        assert measured(url) in (0, 1)
    notes = rung_of(capsys.readouterr().out)["notes"]
    assert "the server counted 5.0 tokens in prompts of 24 token ids" in notes


@pytest.mark.parametrize(
    ("head", "limit_s", "said"), [(b"", 0.5, "within 0.5 s"), (b"HTTP/1.1 200 OK\r\n\r\n", 60, "within 1 MiB")]
)
def test_a_page_without_end_ends(
    head: bytes, limit_s: float, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lpxdoctor.decode.engine._TIMEOUT_S", limit_s)
    monkeypatch.setattr("lpxdoctor.decode.engine._BODY_LIMIT", 1 << 20)
    piece = b"x" * 4096 if head else b"HTTP/1.1 100 Continue\r\n\r\n"
    with answering(head, piece, forever=True, to_all=True) as url:
        assert measured(url) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
