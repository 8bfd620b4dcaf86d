"""Events are told apart by their bytes as decoding them would."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.events import Kind, Splitter, decode, kind
from lpxdoctor.decode.http import ProtocolError


@given(st.text(), st.booleans(), st.booleans())
def test_text_never_decides_what_an_event_is(text: str, spaced: bool, ascii_only: bool) -> None:
    separators = None if spaced else (",", ":")
    tokens = json.dumps({"id": text, "choices": [{"text": text}]}, separators=separators, ensure_ascii=ascii_only)
    usage = json.dumps({"id": text, "choices": [], "usage": {}}, separators=separators, ensure_ascii=ascii_only)
    error = json.dumps({"error": {"message": text}}, separators=separators, ensure_ascii=ascii_only)
    assert kind(f"data: {tokens}".encode(errors="replace")) is Kind.TOKENS
    assert kind(f"data: {usage}".encode(errors="replace")) is Kind.USAGE
    assert kind(f"data: {error}".encode(errors="replace")) is Kind.ERROR


def test_text_that_looks_like_the_key_is_not_it() -> None:
    looks = json.dumps({"error": {"message": '"choices":[{'}})
    assert kind(b"data: " + looks.encode()) is Kind.ERROR


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (b"data: [DONE]", Kind.DONE),
        (b"data:[DONE]\r", Kind.DONE),
        (b": ping", Kind.NOTHING),
        (b"", Kind.NOTHING),
        (b"event: message\nid: 7", Kind.NOTHING),
        (b'data: {"object":"error","message":"out of memory","code":500}', Kind.ERROR),
        (b'event: x\ndata: {"choices" : [ {"text":""}]}', Kind.TOKENS),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}', Kind.BARE),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}', Kind.BARE),
        (b'data: {"choices":[{"delta":{"content":null},"finish_reason":null}]}', Kind.BARE),
        (b'data: {"choices":[{"delta" : { },"finish_reason":"length"}]}', Kind.BARE),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":"a"}}]}', Kind.TOKENS),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":"a"}}]}', Kind.TOKENS),
        (b'data: {"choices":[{"delta":{"content":null,"reasoning":"a"}}]}', Kind.TOKENS),
        (b'data: {"choices":[{"delta":{"content":null,"tool_calls":[{"index":0}]}}]}', Kind.TOKENS),
        # A token without visible text: half a character, or a special one.
        (b'data: {"choices":[{"delta":{"content":""}}]}', Kind.TOKENS),
        (b'data: {"choices":[{"delta":{"content":"\\"role\\":"}}]}', Kind.TOKENS),
    ],
)
def test_other_events(event: bytes, expected: Kind) -> None:
    assert kind(event) is expected


def test_an_event_over_several_data_lines_is_one() -> None:
    assert decode(b'data: {"choices":\ndata: [{"text":"a"}]}').choices[0].text == "a"


def test_what_is_no_completion_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no part of a completion"):
        kind(b'data: {"hello": 1}')
    with pytest.raises(ProtocolError, match="cannot be read"):
        kind(b"data: {half")


def test_an_event_without_end_is_refused_before_memory_is_full() -> None:
    splitter = Splitter()
    assert splitter.feed(b"x" * 1_000_000) == []
    with pytest.raises(ProtocolError, match="does not end"):
        splitter.feed(b"x" * 100_000)
