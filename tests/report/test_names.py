"""Lists of hosts are short, complete, and read back as the same names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.report.names import few, short, value


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("a", "a"),
        ("gpu-01 gpu-02 gpu-03 gpu-09", "gpu-[01-03,09]"),
        ("gpu-9 gpu-10", "gpu-9,gpu-10"),  # another width is another name
        ("gpu-08 gpu-09 gpu-10", "gpu-[08-10]"),
        ("r1-gpu-01 r2-gpu-01 head", "r1-gpu-01,r2-gpu-01,head"),
        ("gpu1.example gpu2.example", "gpu[1-2].example"),
        ("10.0.0.5 10.0.0.6", "10.0.0.[5-6]"),
        ("gpu-01 gpu-01 (2)", "gpu-01,gpu-01 (2)"),
    ],
)
def test_what_is_told(names: str, told: str) -> None:
    assert short(re.split(r" (?=\w)", names)) == told


def read(text: str) -> list[str]:
    """Read a list as pdsh does."""
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
        for numbers in match[2].split(",") if match else [""]:
            first, _, last = numbers.partition("-")
            every = range(int(first), int(last or first) + 1) if match else [0]
            found += [f"{match[1]}{number:0{len(first)}}{match[3]}" if match else part for number in every]
    return found


@given(st.lists(st.from_regex(r"[a-z]{1,2}-?([0-9]{1,3})?(\.x)?", fullmatch=True), unique=True, min_size=1))
def test_no_name_is_lost_and_none_made_up(names: list[str]) -> None:
    assert sorted(read(short(names))) == sorted(names)


def test_too_many_are_counted() -> None:
    assert few([f"a{2 * number:03}" for number in range(40)], 40, "…") == "40 hosts (a000, a002, …)"
    assert few(["a1", "a2"], 40, "…") == "a[1-2]"


def test_a_digest_is_as_short_as_dockers() -> None:
    assert value(f"vllm/vllm-openai@sha256:{'a' * 64}, x") == f"vllm/vllm-openai@sha256:{'a' * 12}, x"
