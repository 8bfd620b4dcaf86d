"""The closed loop against a scripted server: exact times, exact counts, and every fault by its kind."""

import json
import socket
import statistics
import threading
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import pytest

from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.hooks import Hooks, Progress
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.samples import Recording, Role, Sample
from lpxdoctor.decode.validity import judge
from lpxdoctor.decode.workload import ChunkUsage, Dialect, Workload
from tests.decode.peer import Script, serving, serving_apart

WORK = Workload(model="peer", input_len=32, output_len=8, nonce="test")


def load(
    url: str,
    concurrency: int = 2,
    requests: int = 6,
    work: Workload = WORK,
    timeout_s: float = 10,
    hooks: Hooks | None = None,
) -> Recording:
    return Loop(endpoint(url), work, concurrency, requests, timeout_s=timeout_s, hooks=hooks or Hooks()).run()


def counted(recording: Recording) -> list[Sample]:
    return [sample for sample in recording.samples if sample.role is Role.COUNTED]


def kinds(samples: Sequence[Sample]) -> Counter[str]:
    return Counter(sample.kind for sample in samples)


def test_times_are_those_at_which_the_server_wrote() -> None:
    with serving_apart(Script(ttft_s=0.03, gap_s=0.01)) as url:
        recording = load(url, concurrency=4, requests=12, work=replace(WORK, output_len=16))
        with urllib.request.urlopen(f"{url}/seen") as response:
            truth = sorted(json.load(response))
    assert recording.client.kernel_clock
    samples = sorted(recording.samples, key=lambda sample: sample.started_ns)
    assert len(samples) == len(truth)
    late_ms: list[float] = []
    for sample, (received, *writes) in zip(samples, truth, strict=True):
        assert sample.started_ns <= received
        assert len(sample.arrivals_ns) == len(writes)
        late_ms += [(seen - wrote) / 1e6 for seen, wrote in zip(sample.arrivals_ns, writes, strict=True)]
    # The server notes the time after write(): the kernel may have stamped just before. One clock, one machine.
    assert abs(statistics.median(late_ms)) < 0.5
    assert statistics.quantiles(late_ms, n=10)[8] < 5


def test_counted_requests_all_have_company_and_their_exact_lengths() -> None:
    with serving(Script()) as peer:
        recording = load(peer.url, concurrency=4, requests=10)
    assert [sample.failure for sample in recording.samples if sample.failure] == []
    assert len(counted(recording)) == 10
    assert {sample.tokens for sample in counted(recording)} == {8}
    assert {sample.prompt_tokens for sample in recording.samples} == {32}
    assert peer.most_at_once == 4
    assert len(peer.seen) == len(recording.samples)
    prompts = [tuple(seen.body["prompt"]) for seen in peer.seen]
    assert len(set(prompts)) == len(prompts)
    assert sum(sample.tokens for sample in recording.samples) == sum(seen.body["max_tokens"] for seen in peer.seen)


@pytest.mark.parametrize(
    "script",
    [
        Script(line_end="\r\n"),
        Script(spaced=True, comments=True),
        Script(ends_in_own_chunk=True),
        Script(ends_in_own_chunk=True, takes_chunk_usage=False),
        Script(keeps_alive=False),
        Script(ends_unsaid=True),
        Script(tells_usage=False),
        Script(tells_usage=False, ends_in_own_chunk=True),
        Script(text=" \u00e4\U0001f9ea", piece_bytes=1),
        Script(text="x" * 60_000, comments=True, line_end="\r\n"),
        Script(trailer="X-Checksum: 1\r\n"),
        Script(host="::1"),
    ],
    ids=str,
)
def test_other_servers_ways_of_streaming_give_the_same(script: Script) -> None:
    work = WORK if script.takes_chunk_usage else replace(WORK, dialect=Dialect(chunk_usage=ChunkUsage.NEVER))
    with serving(script) as peer:
        recording = load(peer.url, work=work)
    assert kinds(recording.samples) == {"": len(recording.samples)}
    for sample in counted(recording):
        assert (sample.tokens, len(sample.arrivals_ns)) == (8, 8)
        assert sample.tokens_known == script.tells_usage


CHAT = replace(WORK, dialect=Dialect(chat=True))


@pytest.mark.parametrize(
    "script",
    [
        Script(),
        Script(role_on="every"),
        Script(spaced=True, reasons=3),
        Script(ends_in_own_chunk=True),
        Script(ends_in_own_chunk=True, ends_bare=True),
        Script(ends_in_own_chunk=True, ends_bare=True, tells_usage=False),
        Script(role_on="every", reasons=8, line_end="\r\n"),
    ],
    ids=str,
)
def test_a_chats_first_token_is_neither_its_role_nor_its_end(script: Script) -> None:
    with serving(replace(script, ttft_s=0.02)) as peer:
        recording = load(peer.url, work=CHAT)
    assert kinds(recording.samples) == {"": len(recording.samples)}
    for sample in counted(recording):
        assert (sample.tokens, len(sample.arrivals_ns)) == (8, 8)
        assert sample.arrivals_ns[0] - sample.started_ns >= 20e6
    assert {tuple(seen.body) for seen in peer.seen} == {tuple(peer.seen[0].body)}
    assert len({seen.body["messages"][0]["content"] for seen in peer.seen}) == len(peer.seen)


def test_counts_in_every_chunk_are_asked_for_only_once_chunks_hold_several_tokens() -> None:
    when_needed = replace(WORK, output_len=18, dialect=Dialect(chunk_usage=ChunkUsage.WHEN_NEEDED))

    def asked(script: Script) -> tuple[list[bool], list[Sample]]:
        with serving(script) as peer:
            recording = load(peer.url, concurrency=1, work=when_needed)
        assert all(sample.first_tokens_known for sample in counted(recording))
        return ["continuous_usage_stats" in seen.body["stream_options"] for seen in peer.seen], counted(recording)

    assert set(asked(Script())[0]) == {False}
    first, *later = asked(Script(tokens_per_chunk=4, first_chunk_tokens=2))[0]
    assert (first, set(later)) == (False, {True})


def test_several_tokens_a_chunk_are_counted_as_the_server_counts_them() -> None:
    with serving(Script(tokens_per_chunk=4, first_chunk_tokens=2)) as peer:
        recording = load(peer.url, work=replace(WORK, output_len=18))
    for sample in counted(recording):
        assert (sample.tokens, sample.first_tokens, len(sample.arrivals_ns)) == (18, 2, 5)
        assert sample.first_tokens_known


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
        recording = load(peer.url, concurrency=1, requests=8, timeout_s=0.3)
    samples = counted(recording)
    assert kinds(samples) == {"": 6, kind: 2}
    assert all(seen in sample.failure for sample in samples if sample.failure)
    assert recording.stopped == ""
    assert all(len(sample.arrivals_ns) == 8 for sample in samples if not sample.failure)


def test_a_redirect_is_not_followed_but_told() -> None:
    with serving(Script(fault="http-308", headers=("Location: https://elsewhere/v1",))) as peer:
        failure = load(peer.url, concurrency=1, requests=1).samples[0].failure
    assert failure == "http-308: it is at https://elsewhere/v1 now: give that URL"


def test_chunks_without_a_token_are_not_counted_as_tokens() -> None:
    with serving(Script(empty_chunks=True)) as peer:
        recording = load(peer.url)
    assert {sample.tokens for sample in counted(recording)} == {8}
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=32)
    assert "0.50 tokens per chunk: the server also sends chunks without any" in rung.notes


def test_comments_that_keep_the_connection_alive_are_no_sign_of_life() -> None:
    with serving(Script(fault="pings", fault_on=(2,))) as peer:
        recording = load(peer.url, concurrency=1, requests=4, timeout_s=0.3)
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


def test_answers_shorter_than_asked_are_kept_as_they_are() -> None:
    with serving(Script(answer_tokens=5)) as peer:
        recording = load(peer.url)
    assert {sample.tokens for sample in counted(recording)} == {5}


def test_a_run_ends_at_once_when_told_to_and_keeps_what_it_has() -> None:
    seen: list[Progress] = []
    hooks = Hooks(progress=seen.append, is_stopped=lambda: bool(seen) and seen[-1].answered >= 3)
    with serving(Script(ttft_s=0.05)) as peer:
        recording = load(peer.url, concurrency=1, requests=1000, hooks=hooks)
    assert recording.stopped == "interrupted"
    assert 3 <= len(counted(recording)) < 20
    assert seen[-1].asked == 1000


def test_a_connection_that_is_never_accepted_is_a_connect_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.decode.load._CONNECT_TIMEOUT_S", 0.2)
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


def test_large_prompts_are_sent_in_full() -> None:
    with serving(Script()) as peer:
        recording = load(peer.url, requests=3, work=replace(WORK, input_len=400_000))
    assert {sample.prompt_tokens for sample in recording.samples} == {400_000}


def test_a_request_refused_before_it_was_sent_spoils_none_after_it() -> None:
    beginnings: list[bytes] = []
    done = threading.Event()

    def refuse(server: socket.socket) -> None:
        with ExitStack() as stack:
            for _ in range(2):  # and read no more of it: its rest must not come before the next request
                connection = stack.enter_context(server.accept()[0])
                beginnings.append(connection.recv(64))
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            done.wait(10)

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that not all of it fits into the kernel
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(10)
        thread = threading.Thread(target=refuse, args=(server,))
        thread.start()
        work = replace(WORK, input_len=2_000_000)
        recording = load(f"http://127.0.0.1:{server.getsockname()[1]}", concurrency=1, requests=1, work=work)
        done.set()
        thread.join()
    assert kinds(recording.samples) == {"http-413": 2}
    assert [piece[:5] for piece in beginnings] == [b"POST ", b"POST "]


def test_the_client_knows_that_it_was_late(peer_apart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    ticks = [0]

    def doze(_progress: Progress) -> None:
        ticks[0] += 1
        time.sleep(0.05)

    recording = load(
        peer_apart, concurrency=4, requests=4, work=replace(WORK, output_len=32), hooks=Hooks(progress=doze)
    )
    client = recording.client
    assert ticks[0] > 2
    assert client.longest_turn_ns >= 50e6
    late = [bundle for sample in recording.samples for bundle in sample.bundles if bundle.chunks > 2]
    assert late
    assert max(bundle.span_ns for bundle in late) > 20e6
    assert client.bundled >= len(late)


@pytest.fixture
def peer_apart() -> object:
    with serving_apart(Script(gap_s=0.01)) as url:
        yield url
