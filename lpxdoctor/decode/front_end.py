"""Two rungs in; whether the server's front end sends late at the second what its engine has made out: pure.

The front end is the engine's API process: it turns tokens into text and text into chunks, one request after the other.
An engine that counts the times between its own outputs proves it: where these stay short and answers take long, what is
late lies between the two. The client is excluded by its own readings. Without such counters several tokens in each
chunk, or several chunks in each reading, are a sign, since both say that chunks waited for each other.
"""

from dataclasses import dataclass

from lpxdoctor.decode.limits import answer_ms
from lpxdoctor.decode.profile import Rung

_LATE = 1.15  # times as long as by the engine's own times, in relation to the first rung
_MORE_A_CHUNK = 1.5  # tokens, in relation to the first rung
_BUNDLED = 0.3  # of the reads
_QUEUED = 1.5  # times the engine's mean wait: warm-up requests are in that, of which the first wait for nobody
_PROVED_SHARE, _LIKELY_SHARE = 0.5, 0.4  # of the growth of an answer's time


@dataclass(frozen=True)
class Late:
    """What shows that the front end is late; proved by the engine's own counters, or a sign."""

    proved: bool
    seen: tuple[str, ...]


def late(first: Rung, rung: Rung) -> Late | None:
    """Tell whether the front end is late at a rung, held against the first; None where it is not, or nothing tells."""
    more = f"the first token took {rung.ttft_ms.p50 or 0:.0f} ms, {first.ttft_ms.p50 or 0:.0f} at {first.concurrency}"
    usual, now = _apart(first), _apart(rung)
    if usual and now:
        seen = _proof(first, rung) if now < _LATE * usual else _chunks(rung)
        proof = (seen, f"its API process is late, not the client: {_client(rung)}", more)
        return Late(proved=True, seen=proof) if seen else None
    sign = _sign(first, rung)
    seen = f"at {rung.concurrency} at once the server sent {sign}: its API process is late"
    return Late(proved=False, seen=(seen, _client(rung), more)) if sign else None


def is_cause(sign: Late, found: Rung, rung: Rung) -> bool:
    """Tell whether it is the front end that makes answers take longer at a rung than at the knee."""
    before, now = answer_ms(found), answer_ms(rung)
    if not before or not now or now <= before:
        return False
    one, other = _times(found), _times(rung)
    if sign.proved and one and other:
        return 1 - (other[1] - one[1]) / max(other[0] - one[0], 1e-9) >= _PROVED_SHARE
    return ((rung.ttft_ms.p50 or 0) - (found.ttft_ms.p50 or 0)) / (now - before) >= _LIKELY_SHARE


def _apart(rung: Rung) -> float | None:
    """Return how far chunks come apart, in relation to the engine's own outputs."""
    own = rung.engine.inter_token_mean_ms if rung.engine else None
    return rung.itl_ms.mean / own if own and rung.itl_ms.mean else None


def _times(rung: Rung) -> tuple[float, float] | None:
    """Return how long a mean answer took here, and by the engine's own times.

    An engine that does not tell when it made the first token is taken to have made it when it came.
    """
    engine, first, each = rung.engine, rung.ttft_ms.mean, rung.tpot_ms.mean
    if engine is None or engine.inter_token_mean_ms is None or first is None or each is None:
        return None
    known = None if engine.prefill_mean_ms is None else _QUEUED * (engine.queue_mean_ms or 0.0) + engine.prefill_mean_ms
    later = (rung.output_tokens or 1) - 1
    return first + later * each, (first if known is None else known) + later * engine.inter_token_mean_ms


def _proof(first: Rung, rung: Rung) -> str:
    """Return what whole answers prove, "" where they took as long as the engine's own times say."""
    usual, now = _times(first), _times(rung)
    if not usual or not now or now[0] / now[1] < _LATE * usual[0] / usual[1]:
        return ""
    return f"at {rung.concurrency} at once the engine made an answer in {now[1]:.0f} ms, and it took {now[0]:.0f}"


def _chunks(rung: Rung) -> str:
    own = rung.engine.inter_token_mean_ms if rung.engine else None
    merged = f", with {rung.tokens_per_chunk:.1f} tokens each" if (rung.tokens_per_chunk or 1) >= _MORE_A_CHUNK else ""
    return (
        f"at {rung.concurrency} at once the engine made a token of each answer every {own:.1f} ms, "
        f"and chunks came every {rung.itl_ms.mean:.1f}{merged}"
    )


def _sign(first: Rung, rung: Rung) -> str:
    before, now = first.tokens_per_chunk, rung.tokens_per_chunk
    if before and now and now >= _MORE_A_CHUNK * before:
        return f"{now:.1f} tokens a chunk"
    bundled = rung.client.bundled_share
    if bundled >= _BUNDLED and first.client.bundled_share < _BUNDLED / 3:
        return f"several chunks in {bundled:.0%} of the reads"
    return ""


def _client(rung: Rung) -> str:
    delay = rung.client.read_delay_p99_ms
    within = f"read 99% of all within {delay:.1f} ms and " if delay is not None else ""
    return f"this client {within}used {rung.client.cpu_share:.0%} of a core"
