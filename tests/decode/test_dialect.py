"""How a server is asked is found out by asking: what it refuses is given up, nothing else is, and not for ever."""

import pytest

from lpxdoctor.decode.dialect import negotiated
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.decode.engine import Model
from lpxdoctor.decode.hooks import Hooks
from lpxdoctor.decode.target import Target
from lpxdoctor.decode.workload import ChunkUsage, Dialect, Workload
from lpxdoctor.errors import MeasureError
from tests.decode.peer import Peer, serving
from tests.decode.script import Script

WORK = Workload(model="peer", input_len=16, output_len=6, nonce="test")
MOST_EXACT = Dialect(chunk_usage=ChunkUsage.WHEN_NEEDED)
CHAT = ("/v1/chat/completions",)


def target(peer: Peer) -> Target:
    return Target(endpoint=endpoint(peer.url), model=Model(id="peer"), deployment=None, reached="", is_local=True)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Script(), MOST_EXACT),
        (Script(tokens_per_chunk=3), Dialect()),
        (Script(takes_chunk_usage=False), Dialect(chunk_usage=ChunkUsage.NEVER)),
        (Script(takes_token_ids=False), Dialect(token_ids=False, chunk_usage=ChunkUsage.WHEN_NEEDED)),
        (Script(refused=("ignore_eos",)), Dialect(ignore_eos=False, chunk_usage=ChunkUsage.WHEN_NEEDED)),
        (Script(refused=("temperature",)), Dialect(temperature=False, chunk_usage=ChunkUsage.WHEN_NEEDED)),
        (Script(refused=("stream_options",)), Dialect(usage=False, chunk_usage=ChunkUsage.NEVER)),
        (Script(has=CHAT), Dialect(chat=True, chunk_usage=ChunkUsage.WHEN_NEEDED)),
        (
            Script(has=CHAT, refused=("cache_salt", "max_tokens"), hint="use max_completion_tokens instead"),
            Dialect(
                chat=True,
                cache_salt=False,
                max_tokens="max_completion_tokens",
                chunk_usage=ChunkUsage.WHEN_NEEDED,
            ),
        ),
    ],
    ids=str,
)
def test_only_what_is_refused_is_given_up(script: Script, expected: Dialect) -> None:
    with serving(script) as peer:
        assert negotiated(target(peer), WORK, 10, Hooks()) == expected


def test_a_server_that_refuses_everything_is_asked_a_few_times_only() -> None:
    with serving(Script(fault="http-400")) as peer, pytest.raises(MeasureError, match="http-400: "):
        negotiated(target(peer), WORK, 10, Hooks())
    assert len(peer.seen) <= 14
    assert len({str(seen.body) for seen in peer.seen}) == len(peer.seen)


def test_a_stuck_server_is_not_waited_for_again_and_again() -> None:
    with serving(Script(fault="stall", fault_after=0)) as peer, pytest.raises(MeasureError, match="--timeout"):
        negotiated(target(peer), WORK, 1, Hooks())
    assert len(peer.seen) == 2
