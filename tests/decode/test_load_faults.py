"""Every fault of a server is counted by its kind; the rest of the rung goes on, and no latency holds any of it."""

import socket
import threading
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import pytest

from lpxdoctor.decode.validity import judge
from tests.beside import beside
from tests.decode.peer import serving
from tests.decode.rungs import WORK, counted, kinds, load
from tests.decode.script import Script


@pytest.mark.parametrize(
    ("fault", "kind", "seen"),
    [
        ("http-429", "http-429", "scripted"),
        ("http-500", "http-500", "scripted"),
        ("cut", "cut", "after 2 chunks"),
        ("reset", "cut", ""),
        ("stall", "stall", "after 2 chunks"),
        ("error-event", "stream-error", "scripted"),
        ("malformed", "malformed", "chunk"),
        ("no-stream", "empty", "streamed"),
        ("html", "empty", "text/html) has no chunk with tokens; is it streamed? <html><title>Sign in"),
        ("gzip", "empty", "gzip"),
        ("http-401", "http-401", "scripted"),
        ("http-404", "http-404", "scripted"),
    ],
)
def test_a_fault_is_counted_by_its_kind_and_the_rest_goes_on(fault: str, kind: str, seen: str) -> None:
    with serving(Script(fault=fault, fault_on=(4, 6))) as peer:
        recording = load(peer.url, concurrency=1, requests=8, timeout_s=3)
    samples = counted(recording)
    assert kinds(samples) == {"": 6, kind: 2}
    assert all(seen in sample.failure for sample in samples if sample.failure)
    assert recording.stopped == ""
    assert all(len(sample.arrivals_ns) == 8 for sample in samples if not sample.failure)


def test_a_redirect_is_not_followed_but_told() -> None:
    with serving(Script(fault="http-308", headers=("Location: https://elsewhere/v1",))) as peer:
        failure = load(peer.url, concurrency=1, requests=1).samples[0].failure
    assert failure == "http-308: it is at https://elsewhere/v1 now: give that URL"


def test_comments_that_keep_the_connection_alive_are_no_sign_of_life() -> None:
    with serving(Script(fault="pings", fault_on=(2,))) as peer:
        recording = load(peer.url, concurrency=1, requests=4, timeout_s=3)
    assert kinds(counted(recording)) == {"": 3, "stall": 1}


def test_a_failed_request_keeps_the_tokens_it_had() -> None:
    with serving(Script(fault="cut", fault_on=(2,))) as peer:
        failed = next(sample for sample in load(peer.url, concurrency=1).samples if sample.failure)
    assert (failed.tokens, len(failed.arrivals_ns)) == (2, 2)


def test_a_server_that_goes_away_ends_the_rung() -> None:
    with serving(Script()) as peer:
        url = peer.url
    recording = load(url, concurrency=2, requests=50)
    assert set(kinds(recording.samples)) == {"connect"}
    assert "all failed" in recording.stopped
    assert len(recording.samples) < 15


def test_a_refusing_server_is_not_hammered() -> None:
    with serving(Script(fault="http-503")) as peer:
        recording = load(peer.url, concurrency=1, requests=50)
    starts = sorted(sample.started_ns for sample in recording.samples)
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 0.2e9


def test_a_connection_that_is_never_accepted_is_a_connect_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.decode.slot._CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as server:  # bound and listening for none: the kernel drops further connection requests
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            recording = load(f"http://127.0.0.1:{address[1]}", concurrency=1, requests=1)
    assert set(kinds(recording.samples)) == {"connect"}
    assert "no answer within" in recording.samples[0].failure


def test_a_connection_that_ends_between_two_requests_is_no_failure_of_the_second() -> None:
    with serving(Script(ends_unsaid=True)) as peer:
        recording = load(peer.url, concurrency=2, requests=8)
    assert kinds(recording.samples) == {"": len(recording.samples)}
    assert 1 <= recording.resent <= 2  # once a slot at most: then each request gets a connection of its own
    assert len(peer.seen) == len(recording.samples)
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=32)
    assert f"{recording.resent} requests were sent once more" in " ".join(rung.notes)
    with serving(Script(fault="reset", fault_after=0, fault_on=(3,))) as peer:
        recording = load(peer.url, concurrency=1, requests=5)
    assert kinds(recording.samples)["cut"] + recording.resent == 1


def test_a_request_refused_before_it_was_sent_spoils_none_after_it() -> None:
    beginnings: list[bytes] = []
    done = threading.Event()

    def refuse(server: socket.socket) -> None:
        with ExitStack() as stack:
            for _ in range(2):  # and read no more of it: its rest must not come before the next request
                connection = stack.enter_context(server.accept()[0])
                beginnings.append(connection.recv(64))
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            done.wait(60)

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that not all of it fits into the kernel
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(60)
        work = replace(WORK, input_len=2_000_000)
        with beside(refuse, server):
            recording = load(f"http://127.0.0.1:{server.getsockname()[1]}", concurrency=1, requests=1, work=work)
            done.set()
    assert kinds(recording.samples) == {"http-413": 2}
    assert [piece[:5] for piece in beginnings] == [b"POST ", b"POST "]
