"""Turns are as far apart as an answer's chunks allow, and no farther."""

import time

import pytest

from lpxdoctor.decode.pace import Pace

MS = 1_000_000


@pytest.mark.parametrize(
    ("ttft_ms", "gap_ms", "chunks", "turn_ms"),
    [
        (50, 9, 128, 3),  # a third of a gap
        (50, 1.2, 128, 0.5),
        (1, 0.1, 128, 0.5),  # never less: being woken for every chunk is what costs
        (50, 100, 128, 4),  # never more
        (50, 10, 8, 0.6),  # a short request is followed by the next one soon
        (50, 10, 2, 0.5),
        (50, 0, 1, 0.5),  # one chunk tells no gap
    ],
)
def test_turns_follow_the_last_answer(ttft_ms: float, gap_ms: float, chunks: int, turn_ms: float) -> None:
    pace = Pace()
    arrivals = [round((7000 + ttft_ms + number * gap_ms) * MS) for number in range(chunks)]
    pace.note(7000 * MS, arrivals, bundled=False)
    assert pace.turn_ns == pytest.approx(turn_ms * MS, rel=0.001)


def test_turns_are_closer_where_chunks_have_met_in_one_read() -> None:
    pace = Pace()
    for bundled, turn_ms in ((False, 3), (True, 1.125), (False, 3)):
        pace.note(0, [(50 + 9 * number) * MS for number in range(128)], bundled=bundled)
        assert pace.turn_ns == pytest.approx(turn_ms * MS, rel=0.001)


def test_a_late_turn_is_followed_by_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace()
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: pytest.fail("it rested"))
        pace.rest(time.monotonic_ns() - 10 * pace.turn_ns)
    pace.rest(before := time.monotonic_ns())
    assert time.monotonic_ns() - before >= pace.turn_ns
