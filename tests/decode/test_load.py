"""The closed loop against a scripted server: exact times and exact counts, whatever its way of streaming."""

import json
import urllib.request
from dataclasses import replace

import pytest

from lpxdoctor.decode.hooks import Hooks, Progress
from lpxdoctor.decode.samples import Role, Sample
from lpxdoctor.decode.validity import judge
from lpxdoctor.decode.workload import ChunkUsage, Dialect
from tests.decode.peer import serving, serving_apart
from tests.decode.rungs import WORK, counted, kinds, load
from tests.decode.script import Script

SAME_NS = 500_000  # one machine, two clocks of it


def test_times_are_those_at_which_the_server_wrote() -> None:
    with serving_apart(Script(ttft_s=0.03, gap_s=0.01)) as url:
        recording = load(url, concurrency=4, requests=12, work=replace(WORK, output_len=16))
        with urllib.request.urlopen(f"{url}/seen") as response:
            truth = sorted(json.load(response), key=lambda seen: seen[-1])  # many begin, but no two end, at once
    assert recording.client.kernel_clock
    samples = sorted(recording.samples, key=lambda sample: sample.arrivals_ns[-1])
    assert len(samples) == len(truth)
    spans_ns: list[int] = []
    for sample, (received, *writes) in zip(samples, truth, strict=True):
        assert sample.started_ns <= received
        assert len(sample.arrivals_ns) == len(writes)
        if sample.role is Role.COUNTED:
            spans_ns += as_written(sample, writes)
    assert min(spans_ns) == 0  # of a starved client most are read together


def as_written(sample: Sample, writes: list[tuple[int, int]]) -> list[int]:
    """Check each arrival by when the server wrote; return how exact the client says each to be.

    But for the last, which is read with the end of the answer, and that is written a moment later.
    """
    spans_ns = [0] * len(writes)
    for bundle in sample.bundles:
        spans_ns[bundle.first : bundle.first + bundle.chunks] = [bundle.span_ns] * bundle.chunks
    for (before, after), seen, span in list(zip(writes, sample.arrivals_ns, spans_ns, strict=True))[:-1]:
        assert before - SAME_NS < seen < after + span + SAME_NS
    return spans_ns


def test_counted_requests_all_have_company_and_their_exact_lengths() -> None:
    with serving(Script(ttft_s=0.05)) as peer:  # so that a starved server has four at once
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


def test_chunks_without_a_token_are_not_counted_as_tokens() -> None:
    with serving(Script(empty_chunks=True)) as peer:
        recording = load(peer.url)
    assert {sample.tokens for sample in counted(recording)} == {8}
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=32)
    assert "0.50 tokens per chunk: the server also sends chunks without any" in rung.notes


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


def test_large_prompts_are_sent_in_full() -> None:
    with serving(Script()) as peer:
        recording = load(peer.url, requests=3, work=replace(WORK, input_len=400_000))
    assert {sample.prompt_tokens for sample in recording.samples} == {400_000}


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
