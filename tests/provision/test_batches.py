"""Batches: every host once, in order, the canary alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.errors import UsageError
from lpxdoctor.provision.batches import batches, parse

SIZES = st.one_of(st.integers(1, 50).map(str), st.integers(1, 100).map(lambda percent: f"{percent}%"))


@given(st.integers(0, 120), st.lists(SIZES, min_size=1, max_size=4), st.booleans())
def test_every_host_is_in_one_batch_and_in_order(count: int, sizes: list[str], canary: bool) -> None:
    names = [f"gpu-{number}" for number in range(count)]
    made = batches(names, parse(",".join(sizes)), count, canary=canary)
    assert [name for batch in made for name in batch] == names
    assert all(made)
    if canary and names:
        assert made[0] == ("gpu-0",)


def test_percentages_are_of_all_hosts_and_the_last_size_repeats() -> None:
    names = tuple("abcdefghijklmnopqrst")
    assert [len(batch) for batch in batches(names, parse("1,10%,50%"), 20, canary=True)] == [1, 1, 2, 10, 6]
    assert [len(batch) for batch in batches(names[10:], parse("10%"), 20, canary=False)] == [2] * 5
    assert [len(batch) for batch in batches(names[:3], parse("1%"), 20, canary=False)] == [1, 1, 1]


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "ten", "5,", "-1", "1.5", "10 %", "5;6"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no size of a batch"):
        parse(text)
