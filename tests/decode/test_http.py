"""However the bytes of a response are split, the same comes out; whatever they are, only our own error does."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lpxdoctor.decode.events import Splitter, data, decode, kind
from lpxdoctor.decode.http import ProtocolError, Response

EVENTS = [b'data: {"choices":[{"text":"\xc3\xa4"}]}', b": comment", b'data: {"choices":[],"usage":{}}', b"data: [DONE]"]


def chunked(pieces: Sequence[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + trailer + b"\r\n"


def read(content: Sequence[bytes]) -> tuple[list[bytes], Response]:
    response, splitter, events = Response(), Splitter(), list[bytes]()
    for piece in content:
        events += splitter.feed(response.feed(piece))
    return events + splitter.end(), response


def split(content: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[a:b] for a, b in pairwise(edges)]


@given(
    st.lists(st.sampled_from(EVENTS), max_size=6),
    st.lists(st.integers(0, 4000), max_size=12),
    st.lists(st.integers(0, 4000), max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b";name=value"]),
    st.sampled_from([b"", b"X-Trailer: 1\r\n"]),
)
def test_any_split_of_a_stream_gives_the_same_events(
    events: list[bytes], chunks: list[int], reads: list[int], line: bytes, extension: bytes, trailer: bytes
) -> None:
    body = b"".join(event + line + line for event in events)
    wire = chunked(split(body, chunks), extension, trailer)
    seen, response = read(split(wire, reads))
    assert seen == [event if line == b"\n" else event + b"\r" for event in events]
    assert [data(event) for event in seen] == [data(event) for event in events]
    assert response.complete
    assert response.keeps_alive


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", [])
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX", [])
@example(b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", [])
def test_any_bytes_raise_at_most_our_own_error(content: bytes, cuts: list[int]) -> None:
    with suppress(ProtocolError):
        read(split(content, cuts))


@given(st.binary(max_size=200), st.sampled_from([kind, decode]))
@example(b"data: " + b"[" * 3000, decode)
@example(b'data: {"error": ' + b"[" * 3000, kind)
@example(b'data: "\xff"', kind)
@example(b'data: {"choices": [{"text": 3}]}', decode)
def test_any_event_raises_at_most_our_own_error(event: bytes, read_it: Callable[[bytes], object]) -> None:
    with suppress(ProtocolError):
        read_it(event)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_a_body_with_a_length_ends_there(body: bytes, cuts: list[int]) -> None:
    wire = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    response = Response()
    assert b"".join(response.feed(piece) for piece in split(wire, cuts)) == body
    assert response.complete
    assert response.status == 404


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.0 200 OK\r\n\r\nabc") + response.feed(b"def") == b"abcdef"
    assert not response.complete
    response.end()
    assert response.complete
    assert not response.keeps_alive


def test_a_connection_that_ends_early_leaves_the_response_incomplete() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc")
    response.end()
    assert not response.complete


def test_an_interim_response_is_passed_over() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") == b"ok"
    assert response.status == 200


def test_a_server_that_wants_to_close_is_believed() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n")
    assert response.complete
    assert not response.keeps_alive


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nmore",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000,
    ],
)
def test_what_is_no_response_is_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        read([wire])
