"""A failed request is made again only where time can help, with bounds, and what comes of it is in no latency."""

from collections import Counter

import pytest

from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.load import Loop
from lpxdoctor.decode.retry import pause_s
from lpxdoctor.decode.samples import Recording, Role
from lpxdoctor.decode.validity import judge
from lpxdoctor.decode.workload import Workload
from tests.decode.peer import Peer, serving
from tests.decode.script import Script

WORK = Workload(model="peer", input_len=16, output_len=6, nonce="test")


@pytest.mark.parametrize(
    "failure",
    [
        "stall: nothing came for 3.0 s after 2 chunks",
        "connect: Connection refused",
        "cut: the server ended the stream after 2 chunks",
        "http-408: timeout",
        "http-429: slow down",
        "http-503: overloaded",
        "http-500: CUDA out of memory. Tried to allocate 2.00 GiB",
        "stream-error: torch.OutOfMemoryError: CUDA out of memory",
    ],
)
def test_what_may_pass_is_tried_again_twice_with_growing_pauses(failure: str) -> None:
    first, second = pause_s(failure, 0), pause_s(failure, 1)
    assert first
    assert second == 2 * first
    assert pause_s(failure, 2) is None


@pytest.mark.parametrize(
    "failure",
    [
        "http-400: This model's maximum context length is 8192 tokens",
        "http-422: validation error",
        "http-401: Unauthorized",
        "http-403: Forbidden",
        "http-404: The model `x` does not exist",
        "http-413: too large",
        "http-500: internal error",
        "http-307: it is at http://elsewhere now: give that URL",
        "stream-error: scripted",
        "malformed: a chunk does not begin with its size",
        "empty: no chunk",
    ],
)
def test_what_stays_wrong_is_not_tried_again(failure: str) -> None:
    assert pause_s(failure, 0) is None


def test_a_servers_wish_is_respected_and_not_waited_for_without_end() -> None:
    assert pause_s("http-429: x", 0, "3") == 3
    assert pause_s("http-429: x", 0, "0") == pause_s("http-429: x", 0)
    assert pause_s("http-503: x", 0, "600") is None
    assert pause_s("http-429: x", 0, "Fri, 31 Dec 1999 23:59:59 GMT") == pause_s("http-429: x", 0)


def load(peer: Peer) -> Recording:
    return Loop(endpoint(peer.url), WORK, 1, 6, timeout_s=3, hooks=Hooks()).run()


def roles(recording: Recording) -> Counter[tuple[Role, str]]:
    return Counter((sample.role, sample.kind) for sample in recording.samples if sample.role is not Role.WARM_UP)


@pytest.mark.parametrize(("fault", "kind"), [("http-429", "http-429"), ("stall", "stall"), ("reset", "cut")])
def test_an_error_stays_an_error_when_its_retry_is_answered(fault: str, kind: str) -> None:
    with serving(Script(fault=fault, fault_on=(3,), ttft_s=0.05)) as peer:
        recording = load(peer)
    assert roles(recording) == {(Role.COUNTED, ""): 5, (Role.COUNTED, kind): 1, (Role.RETRY, ""): 1}
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=16)
    assert (rung.requests, rung.errors, rung.errors_by_kind) == (5, 1, {kind: 1})
    assert (rung.retries, rung.retries_answered) == ({kind: 1}, 1)
    assert rung.ttft_ms.n == rung.tpot_ms.n == 5
    assert not rung.valid
    assert "made again 1 times, 1 were answered: in no latency here" in " ".join(rung.notes)
    prompts = [tuple(seen.body["prompt"]) for seen in peer.seen]
    assert len(set(prompts)) == len(prompts)  # the same prompt would be answered from the prefix cache


def test_retries_have_a_bound_and_validation_has_none() -> None:
    with serving(Script(fault="http-503", fault_on=(3, 4, 5, 6))) as peer:
        samples = load(peer).samples
    assert [(s.retried_for, s.kind) for s in samples if s.role is Role.RETRY] == [("http-503", "http-503")] * 2 + [
        ("http-503", "")
    ]
    with serving(Script(fault="http-422", fault_on=(3,))) as peer:
        recording = load(peer)
    assert roles(recording) == {(Role.COUNTED, ""): 5, (Role.COUNTED, "http-422"): 1}


def test_the_servers_wish_to_be_left_alone_is_kept() -> None:
    with serving(Script(fault="http-429", fault_on=(3,), headers=("Retry-After: 1",))) as peer:
        load(peer)
    refused, again = peer.seen[3].received_ns, peer.seen[4].received_ns
    assert 1e9 <= again - refused < 30e9
