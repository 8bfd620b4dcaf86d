"""Every counted request runs among as many others as the rung says, and every slot gets one."""

import heapq
import random
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.samples import Role
from lpxdoctor.decode.schedule import Schedule


def play(concurrency: int, requests: int, output_len: int, seed: int) -> list[tuple[float, float, int, Role, int]]:
    """Let slots of uneven speed work through a schedule; return (began, ended, slot, role, tokens) per request."""
    chance = random.Random(seed)
    schedule = Schedule(concurrency, requests, output_len)
    done: list[tuple[float, float, int, Role, int]] = []
    ends: list[tuple[float, int]] = []

    def start(slot: int, now: float) -> None:
        running = [(began, tokens) for began, ended, _, role, tokens in done if role is Role.COUNTED and ended > now]
        youngest = min((int(now - began) for began, _ in running), default=0)
        work = schedule.next(slot, lambda: youngest)
        if work is None:
            return
        role, tokens = work
        ended = now + 2 + tokens * chance.uniform(0.9, 1.1)
        done.append((now, ended, slot, role, tokens))
        heapq.heappush(ends, (ended, slot))

    for slot in range(concurrency):
        start(slot, 0.0)
        schedule.had_first_token(slot)
    while ends:
        now, slot = heapq.heappop(ends)
        schedule.ended(slot, failed=False)
        start(slot, now)
    return done


@given(st.integers(1, 20), st.integers(1, 60), st.integers(2, 60), st.integers(0, 999))
def test_counted_requests_always_have_company(concurrency: int, requests: int, output_len: int, seed: int) -> None:
    done = play(concurrency, requests, output_len, seed)
    counted = [entry for entry in done if entry[3] is Role.COUNTED]
    assert len(counted) == max(requests, concurrency)
    assert {slot for _, _, slot, _, _ in counted} == set(range(concurrency))
    assert all(tokens == output_len for *_, tokens in counted)
    last_end = max(ended for _, ended, *_ in counted)
    for moment in {began for began, *_ in counted} | {ended - 1e-6 for _, ended, *_ in counted}:
        assert sum(began <= moment < ended for began, ended, *_ in done) == concurrency, moment
    assert max(ended for _, ended, *_ in done) <= last_end + 4 + 1.1 * output_len


def test_one_slot_warms_up_once_and_never_cools_down() -> None:
    roles = Counter(role for *_, role, _ in play(1, 5, 16, 0))
    assert roles == {Role.WARM_UP: 1, Role.COUNTED: 5}


def test_slots_hand_over_spread_over_one_request() -> None:
    starts = sorted(
        min(began for began, _, slot, role, _ in play(16, 64, 160, 1) if slot == wanted and role is Role.COUNTED)
        for wanted in range(16)
    )
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert max(gaps) < 40  # of about 160 for a whole request; all at once would be 0 and then 160


def test_a_slot_that_has_no_token_yet_keeps_the_others_warming_up() -> None:
    schedule = Schedule(2, 4, 10)
    assert schedule.next(0, lambda: 0) == (Role.WARM_UP, 5)
    assert schedule.next(1, lambda: 0) == (Role.WARM_UP, 10)
    schedule.had_first_token(0)
    schedule.ended(0, failed=False)
    assert schedule.next(0, lambda: 0) == (Role.WARM_UP, 5)
    schedule.had_first_token(1)
    schedule.ended(0, failed=False)
    assert schedule.next(0, lambda: 0) == (Role.COUNTED, 10)


def test_a_server_that_only_fails_is_left_alone() -> None:
    schedule = Schedule(1, 100, 10)
    made = 0
    while schedule.next(0, lambda: 0) is not None:
        made += 1
        schedule.ended(0, failed=True)
    assert made == 8
    assert schedule.stopped == "the last 8 requests all failed"


def test_one_answer_in_between_is_reason_to_go_on() -> None:
    schedule = Schedule(1, 30, 10)
    made = 0
    while schedule.next(0, lambda: 0) is not None:
        made += 1
        schedule.ended(0, failed=made % 8 != 0)
    assert made == 31
