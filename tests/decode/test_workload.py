"""Prompts of exact length, none like another, in bodies that servers take."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.workload import ChunkUsage, Dialect, Workload

WORK = Workload(model='a "name"', input_len=128, output_len=64, nonce="cafe")


def prompt_of(work: Workload, number: int) -> list[int]:
    ids: list[int] = json.loads(b"{" + work.prompt(number) + b"}")["prompt"]
    return ids


@given(st.integers(1, 3000), st.integers(0, 10**6))
def test_a_prompt_has_exactly_so_many_ordinary_token_ids(length: int, number: int) -> None:
    ids = prompt_of(replace(WORK, input_len=length), number)
    assert len(ids) == length
    assert all(100 <= identity < 1000 for identity in ids)


def test_no_two_prompts_of_a_run_begin_alike() -> None:
    parts = (WORK, WORK.part("rung0"), WORK.part("rung1"), replace(WORK, nonce="beef"))
    beginnings = [tuple(prompt_of(part, number)[:16]) for part in parts for number in range(500)]
    assert len(set(beginnings)) == len(beginnings)


def test_the_same_nonce_asks_the_same() -> None:
    assert WORK.prompt(3) == replace(WORK).prompt(3)


def test_ids_use_the_whole_range() -> None:
    assert len({identity for number in range(100) for identity in prompt_of(WORK, number)}) == 900


def asked(work: Workload, number: int = 1, output_len: int = 64, *, chunk_usage: bool = False) -> Any:
    return json.loads(work.body(work.prompt(number), output_len, chunk_usage=chunk_usage))


def test_a_body_asks_for_exactly_so_many_tokens() -> None:
    body = asked(WORK, chunk_usage=True)
    assert body.pop("prompt") == prompt_of(WORK, 1)
    assert body == {
        "model": 'a "name"',
        "max_tokens": 64,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert asked(WORK)["stream_options"] == {"include_usage": True}


def test_dialects_leave_out_what_a_server_does_not_take() -> None:
    plain = Dialect(
        token_ids=False,
        chunk_usage=ChunkUsage.NEVER,
        usage=False,
        ignore_eos=False,
        temperature=False,
        max_tokens="max_completion_tokens",
        min_tokens=True,
    )
    body = asked(replace(WORK, dialect=plain), output_len=9)
    assert len(body.pop("prompt").split()) == 128
    expected = {"model": 'a "name"', "max_completion_tokens": 9, "min_tokens": 9, "stream": True}
    assert body == expected


def test_a_chat_has_one_message_and_a_cache_of_its_own() -> None:
    chat = replace(WORK, dialect=Dialect(chat=True))
    bodies = [asked(part, number) for part in (chat, chat.part("rung1")) for number in range(50)]
    for body in bodies:
        (message,) = body["messages"]
        assert message["role"] == "user"
        assert len(message["content"].split()) == 128
        assert "prompt" not in body
    assert len({body["cache_salt"] for body in bodies}) == 100
    assert "cache_salt" not in asked(replace(WORK, dialect=Dialect(chat=True, cache_salt=False)))
