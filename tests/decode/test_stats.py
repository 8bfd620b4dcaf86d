"""The arithmetic of a baseline: percentiles, intervals, definitions of TTFT, ITL and TPOT, window."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.samples import Role
from lpxdoctor.decode.stats import distribution, interval, measured, percentile, steady_window, tokens_in, tpot_of
from tests.decode.recordings import MS, recording, sample, steady


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=200))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    ordered = sorted(values)
    reference = statistics.quantiles(values, n=100, method="inclusive")
    for p in (1, 50, 95, 99):
        assert percentile(ordered, p / 100) == pytest.approx(reference[p - 1], abs=1e-6)


def test_an_interval_holds_the_true_percentile_as_often_as_it_says() -> None:
    chance = random.Random(7)
    truth = {0.5: 0.6931471806, 0.95: 2.995732274, 0.99: 4.605170186}  # of the exponential distribution
    for p, quantile in truth.items():
        held = 0
        for _ in range(1000):
            low, high = interval(sorted(chance.expovariate(1) for _ in range(200)), p)
            held += (low is None or low <= quantile) and (high is None or quantile <= high)
        assert 0.94 <= held / 1000 <= 1.0, p


def test_an_end_beyond_the_samples_is_open_and_too_few_samples_are_said() -> None:
    few = distribution([1.0, 2.0, 3.0])
    assert few.ci95["p99"] == (few.ci95["p99"][0], None)
    assert few.p99 == pytest.approx(2.98)
    assert few.too_few_for == ("p95", "p99")
    assert distribution(range(100)).too_few_for == ()
    assert distribution(range(99)).too_few_for == ("p99",)


def test_nothing_measured_is_null_and_not_zero() -> None:
    none = distribution([])
    assert (none.n, none.mean, none.p50, none.p99) == (0, None, None, None)
    assert none.too_few_for == ("p50", "p95", "p99")


def test_ttft_ends_with_the_first_chunk_and_tpot_leaves_its_tokens_out() -> None:
    numbers = measured(recording([sample(0, [50, 60, 70, 80])], output_len=4))
    assert numbers.ttft.p50 == pytest.approx(50)
    assert numbers.itl.p50 == pytest.approx(10)
    assert numbers.tpot.p50 == pytest.approx(10)


def test_several_tokens_a_chunk_change_tpot_and_not_itl() -> None:
    four = sample(0, [50, 60, 70, 80], tokens=13, first_tokens=1)
    assert tpot_of(four) == pytest.approx(30 / 12)
    numbers = measured(recording([four]))
    assert numbers.itl.p50 == pytest.approx(10)
    assert numbers.tokens_per_chunk == pytest.approx(13 / 4)


def test_an_answer_in_one_chunk_has_no_tpot() -> None:
    assert tpot_of(sample(0, [50], tokens=8, first_tokens=8)) is None
    assert tpot_of(sample(0, [50], tokens=1)) is None


def test_failed_and_uncounted_requests_give_no_latency() -> None:
    good = steady(4)
    bad = sample(0, [900, 1900], failure="cut: seen")
    warm = sample(0, [700, 1700], role=Role.WARM_UP)
    numbers = measured(recording([*good, bad, warm]))
    assert numbers.ttft.n == 4
    assert numbers.ttft.max == pytest.approx(50)
    assert numbers.itl.max == pytest.approx(10)


def test_throughput_of_a_steady_stream_is_exact() -> None:
    numbers = measured(recording(steady(20)))
    assert numbers.output_tokens_per_s == pytest.approx(10 / 0.140)
    assert numbers.requests_per_s == pytest.approx(1 / 0.140)
    assert numbers.window_s == pytest.approx(20 * 0.140)


def test_the_window_opens_with_the_last_slot_and_closes_with_the_last_answer() -> None:
    slots = [
        sample(0, [10, 100]),
        sample(100, [110, 200]),
        sample(150, [160, 240], slot=1),
        sample(20, [30, 400], slot=1, role=Role.COOL_DOWN),
    ]
    assert steady_window(recording(slots, concurrency=2)) == (150 * MS, 240 * MS)
    assert steady_window(recording(slots[:2], concurrency=2)) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 4), st.floats(0, 100))
def test_tokens_of_windows_that_touch_add_up(times: list[float], first: int, each: int, cut: float) -> None:
    times = sorted(times)
    tokens = first + each * (len(times) - 1)
    one = [sample(0, times, tokens=tokens, first_tokens=first)]
    middle = round(cut * MS)
    parts = tokens_in(one, -1, middle) + tokens_in(one, middle, 101 * MS)
    assert parts == pytest.approx(tokens_in(one, -1, 101 * MS)) == pytest.approx(tokens)
