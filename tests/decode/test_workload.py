"""Prompts of exact length, none like another, in bodies that servers take."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.workload import Dialect, Workload

WORK = Workload(model='a "name"', input_len=128, output_len=64, nonce="cafe")


@given(st.integers(1, 3000), st.integers(0, 10**6))
def test_a_prompt_has_exactly_so_many_ordinary_token_ids(length: int, number: int) -> None:
    ids = json.loads(replace(WORK, input_len=length).prompt(number))
    assert len(ids) == length
    assert all(100 <= identity < 1000 for identity in ids)


def test_no_two_prompts_of_a_run_begin_alike() -> None:
    parts = (WORK, WORK.part("rung0"), WORK.part("rung1"), replace(WORK, nonce="beef"))
    beginnings = [tuple(json.loads(part.prompt(number))[:16]) for part in parts for number in range(500)]
    assert len(set(beginnings)) == len(beginnings)


def test_the_same_nonce_asks_the_same() -> None:
    assert WORK.prompt(3) == replace(WORK).prompt(3)


def test_ids_use_the_whole_range() -> None:
    assert len({identity for number in range(100) for identity in json.loads(WORK.prompt(number))}) == 900


def test_a_body_asks_for_exactly_so_many_tokens() -> None:
    body = json.loads(WORK.body(WORK.prompt(1), 64))
    assert body.pop("prompt") == json.loads(WORK.prompt(1))
    assert body == {
        "model": 'a "name"',
        "max_tokens": 64,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_dialects_leave_out_what_a_server_does_not_take() -> None:
    plain = replace(WORK, dialect=Dialect(token_ids=False, chunk_usage=False, min_tokens=True))
    body = json.loads(plain.body(plain.prompt(1), 9))
    assert len(body["prompt"].split()) == 128
    assert body["stream_options"] == {"include_usage": True}
    assert body["min_tokens"] == body["max_tokens"] == 9
