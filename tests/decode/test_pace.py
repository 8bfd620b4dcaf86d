"""Turns are as far apart as an answer's chunks allow, and no farther."""

import time

import pytest

from lpxdoctor.decode.pace import Pace

MS = 1_000_000


@pytest.mark.parametrize(
    ("ttft_ms", "gap_ms", "chunks", "turn_ms"),
    [
        (50, 10, 128, 1.25),  # an eighth of a gap
        (50, 4, 128, 0.5),
        (1, 0.1, 128, 0.5),  # never less: being woken for every chunk is what costs
        (50, 100, 128, 2),  # never more
        (50, 10, 8, 0.6),  # a short request is followed by the next one soon
        (50, 10, 2, 0.5),
        (50, 0, 1, 0.5),  # one chunk tells no gap
    ],
)
def test_turns_follow_the_last_answer(ttft_ms: float, gap_ms: float, chunks: int, turn_ms: float) -> None:
    pace = Pace()
    arrivals = [round((7000 + ttft_ms + number * gap_ms) * MS) for number in range(chunks)]
    pace.note(7000 * MS, arrivals)
    assert pace.turn_ns == pytest.approx(turn_ms * MS, rel=0.001)


def test_a_late_turn_is_followed_by_the_next_at_once() -> None:
    pace = Pace()
    before = time.monotonic_ns()
    pace.rest(before - 10 * pace.turn_ns)
    assert time.monotonic_ns() - before < 0.1 * 1e9
    pace.rest(before := time.monotonic_ns())
    assert time.monotonic_ns() - before >= pace.turn_ns
