"""Targets are read as they are meant or refused, and a rung holds one only as surely as its requests tell."""

from typing import Any

import msgspec
import pytest

from lpxdoctor.decode import slo
from lpxdoctor.decode.profile import Rung
from lpxdoctor.errors import UsageError
from tests.decode.recordings import recording, steady
from tests.decode.test_validity import judged


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("tpot=20ms,ttft=500ms", {"tpot": 20.0, "ttft": 500.0}),
        (" ttft = 0.5 s ", {"ttft": 500.0}),
        ("tpot=7.5", {"tpot": 7.5}),
        ("tpot=900us", {"tpot": 0.9}),
    ],
)
def test_targets_are_milliseconds(typed: str, read: dict[str, float]) -> None:
    assert slo.targets(typed) == pytest.approx(read)


@pytest.mark.parametrize(
    "typed",
    ["", "tpot", "tpot=", "tpot=-1ms", "tpot=0", "tpot=nan", "tpot=1e9ms", "tpot=20m", "itl=5ms", "tpot=1,tpot=2", ","],
)
def test_what_is_no_target_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="--slo"):
        slo.targets(typed)


def rung(concurrency: int, requests: int, ttft_ms: float = 50.0, **changes: Any) -> Rung:
    """Return a valid rung whose requests were all alike, 10 ms a token."""
    made = judged(recording(steady(requests, ttft_ms=ttft_ms)))
    return msgspec.structs.replace(made, concurrency=concurrency, **changes)


def test_the_largest_that_holds_is_named_with_what_ends_it() -> None:
    found = slo.judged([rung(1, 60), rung(4, 60, 90.0), rung(8, 60, 120.0)], {"ttft": 100.0, "tpot": 20.0})
    assert (found.percentile, found.concurrency, found.confident) == ("p95", 4, True)
    assert [one.holds for one in found.rungs] == ["yes", "yes", "no"]
    assert found.rungs[2].because == "p95 of ttft is 120 ms, over 100"


def test_few_requests_prove_nothing() -> None:
    """58 of 58 below are had by one chance in 20 where the 95th percentile is above; 59 are not."""
    few, enough = slo.judged([rung(1, 58)], {"ttft": 60.0}), slo.judged([rung(1, 59)], {"ttft": 60.0})
    assert (few.concurrency, few.confident, few.rungs[0].holds) == (1, False, "likely")
    assert "too few to be sure" in few.rungs[0].because
    assert (enough.concurrency, enough.confident) == (1, True)
    assert 0.95**58 > 0.05 > 0.95**59


def test_a_sure_rung_goes_before_a_larger_likely_one() -> None:
    found = slo.judged([rung(8, 20), rung(4, 60)], {"ttft": 60.0})
    assert (found.concurrency, found.confident) == (4, True)


def test_an_interval_beyond_the_target_is_only_likely() -> None:
    mixed = [*steady(190), *steady(10, ttft_ms=70)]
    found = slo.judged([judged(recording(mixed))], {"ttft": 60.0})
    assert found.rungs[0].holds == "likely"
    assert "may be 70" in found.rungs[0].because


def test_no_rung_holds() -> None:
    found = slo.judged([rung(1, 60), rung(2, 60)], {"ttft": 40.0})
    assert (found.concurrency, found.confident) == (None, False)


def test_a_rung_that_cannot_be_compared_holds_nothing() -> None:
    bad = rung(1, 60, valid=False, invalid_because="client-limited: too slow")
    assert slo.judged([bad], {"ttft": 900.0}).rungs[0].because == "cannot be relied on: client-limited"
    empty = judged(recording(()))
    assert slo.judged([empty], {"ttft": 900.0}).concurrency is None
