"""Reads that are whole chunks of tokens take a shorter way through the client: nothing else may come of it."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lpxdoctor.decode.events import Opening, only_tokens
from lpxdoctor.decode.exchange import Exchange
from lpxdoctor.decode.http import ProtocolError
from lpxdoctor.decode.samples import Role, Sample

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(content: object) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


TEXT = event({"id": "1", "choices": [{"index": 0, "text": " x", "finish_reason": None}]})
ODD = event({"choices": [{"index": 0, "text": '"delta":{"content":"\n\n\r\n', "finish_reason": None}]})
DELTA = event({"choices": [{"index": 0, "delta": {"content": " x"}}]})
ROLE = event({"choices": [{"index": 0, "delta": {"content": "", "role": "assistant"}}]})
EMPTY = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
BODIES = (
    *(TEXT, ODD, DELTA, ROLE, EMPTY, USAGE, b": ping\n\n", TEXT[:9], TEXT[9:], TEXT + TEXT, b"data: [DONE]\n\n"),
    *(TEXT.replace(b"\n", b"\r\n"), event({"error": "x"}), b"d3\r\n", b"\n\n\r\n"),
)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def outcome(reads: Sequence[bytes]) -> tuple[list[int], str, Sample]:
    """Return what an exchange made of these reads: chunks of each, what was wrong, the sample."""
    exchange, counts = Exchange(Role.COUNTED, 0), list[int]()
    try:
        for at, read in enumerate(reads):
            counts.append(exchange.feed(read, at))
        wrong = exchange.failure()
    except ProtocolError as error:
        wrong = str(error)
    return counts, wrong, exchange.broken(len(reads), wrong)


@given(
    st.lists(st.sampled_from(BODIES), max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
    st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(b'0123456789abcdef\r\n{}" :')), max_size=2),
)
@example([TEXT, TEXT, TEXT], [], [])
@example([TEXT, TEXT, TEXT], [], [(len(chunk(TEXT)), ord("1"))])
@example([TEXT, b"d3\r\n", TEXT], [], [(len(chunk(TEXT)), ord("0"))])  # the end comes before a chunk with tokens
def test_the_shorter_way_tells_the_same(bodies: list[bytes], cuts: list[int], flips: list[tuple[int, int]]) -> None:
    chunks = [chunk(body) for body in bodies]
    wire = bytearray(b"".join(chunks))
    for at, byte in flips:
        if wire:
            wire[at % len(wire)] = byte
    ends = [sum(map(len, chunks[:count])) for count in range(len(chunks))]  # most reads end where a chunk does
    edges = sorted({0, *ends, *(cut % (len(wire) + 1) for cut in cuts), len(wire)})
    reads = [HEAD, *(bytes(wire[start:end]) for start, end in pairwise(edges))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpxdoctor.decode.events.only_tokens", lambda _content: [])  # what the shorter ways begin with
        patch.setattr("lpxdoctor.decode.events.Opening.event_of", lambda *_: None)
        expected = outcome(reads)
    assert outcome(reads) == expected


def test_an_event_is_known_by_how_the_one_before_began() -> None:
    for known, other in ((TEXT, TEXT.replace(b" x", b"y" * 300)), (DELTA, DELTA.replace(b" x", b""))):
        opening = Opening(known[:-2])
        assert opening.event_of(chunk(other)) == other[:-2]
        for odd in (ROLE, EMPTY, USAGE, other[1:], other + other, other + b"\n", b"data: [DONE]\n\n"):
            assert opening.event_of(chunk(odd)) is None
        for read in (chunk(other)[:-1], chunk(other)[1:], b"0" + chunk(other), chunk(other) + b"0\r\n\r\n", b""):
            assert opening.event_of(read) is None
    for untold in (EMPTY, event({"choices": [{"text": None}]})):
        assert Opening(untold[:-2]).event_of(chunk(untold)) is None


def test_a_stream_of_tokens_takes_it() -> None:
    assert only_tokens(chunk(TEXT)) == [TEXT[:-2]]
    assert only_tokens(chunk(TEXT) + chunk(DELTA) + chunk(ODD)) == [TEXT[:-2], DELTA[:-2], ODD[:-2]]
    for other in (chunk(TEXT) + b"0\r\n\r\n", chunk(ROLE), chunk(USAGE), chunk(TEXT)[:-1], b"x" + chunk(TEXT), b""):
        assert only_tokens(other) == []
    for other in (b"1" + chunk(TEXT), chunk(DELTA)[1:], chunk(TEXT) + chunk(EMPTY)):
        assert only_tokens(other) == []
