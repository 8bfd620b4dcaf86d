"""What a late client can have done to the numbers: never less than it did, and nothing when it was on time."""

import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.decode.bounds import client_bound
from lpxdoctor.decode.clock import Offset
from lpxdoctor.decode.profile import ClientBound
from lpxdoctor.decode.samples import Bundle, Recording, Sample
from lpxdoctor.decode.stats import measured
from lpxdoctor.decode.watch import Watch
from tests.decode.recordings import MS, ON_TIME, recording, sample, steady


def bound(made: Recording) -> ClientBound:
    numbers = measured(made)
    return client_bound(made, numbers.ttft, numbers.itl, numbers.tpot)


def test_a_client_on_time_bounds_ttft_by_its_sends() -> None:
    client = bound(recording(steady(20)))
    assert client.clock == "kernel"
    assert client.error_ms == {"ttft": pytest.approx(0.02), "itl": 0, "tpot": 0}
    assert client.worst_share == pytest.approx(0.02 / 50)


def test_without_kernel_times_every_arrival_is_as_uncertain_as_it_is_late() -> None:
    late = replace(ON_TIME, kernel_clock=False, lags_ns=array("q", [2 * MS] * 100))
    client = bound(recording(steady(20), client=late))
    assert client.clock == "program"
    assert client.error_ms["itl"] == pytest.approx(2)
    assert client.error_ms["ttft"] == pytest.approx(2.02)
    assert client.worst_share == pytest.approx(0.2)


def test_an_idle_client_is_the_worst_share() -> None:
    client = bound(recording(steady(20), client=replace(ON_TIME, idle_ns=200 * MS)))
    assert client.idle_share == pytest.approx(0.2)
    assert client.worst_share == pytest.approx(0.2)


def read_late(truth_ms: Sequence[float], reads_ms: Sequence[float]) -> Sample:
    """Return what a client records that reads at these moments only: the last arrival of a read is that of all."""
    seen: list[float] = []
    bundles: list[Bundle] = []
    before = 0.0
    for moment in [*sorted(reads_ms), max(truth_ms) + 1]:
        here = [at for at in truth_ms if before < at <= moment]
        if len(here) > 1:
            bundles.append(Bundle(len(seen), len(here), round((here[-1] - before) * MS)))
        seen += [here[-1]] * len(here) if here else []
        before = moment
    return sample(0, seen, bundles=tuple(bundles))


@given(st.integers(0, 10**6), st.integers(0, 40), st.floats(1, 50))
def test_the_true_percentiles_lie_within_the_bound(seed: int, late_reads: int, longest_gap_ms: float) -> None:
    chance = random.Random(seed)
    truths: list[Sample] = []
    seen: list[Sample] = []
    for _ in range(12):
        times = list(accumulate(chance.uniform(0.5, longest_gap_ms) for _ in range(12)))
        late = [chance.uniform(0, times[-1]) for _ in range(late_reads)] or times
        truths.append(sample(0, times))
        seen.append(read_late(times, late))
    client = bound(recording(seen, client=replace(ON_TIME, sends_ns=array("q", [0]))))
    true, recorded = measured(recording(truths)), measured(recording(seen))
    checked = 0
    for name in ("ttft", "itl", "tpot"):
        for p in {"p50", "p95", "p99"} - set(getattr(recorded, name).too_few_for):
            off = abs(getattr(getattr(true, name), p) - getattr(getattr(recorded, name), p))
            assert off <= (client.error_ms[name] or 0) + 1e-4, (name, p)
            checked += 1
    assert checked == 5  # all three of ITL, the medians of TTFT and TPOT


def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, Callable[[int], object]]:
    """Return a watch that has started, and what sets how long its thread has waited for a processor, in ns."""
    file = tmp_path / "schedstat"
    monkeypatch.setattr("lpxdoctor.decode.watch._WAITS", str(file))

    def wait(total_ns: int) -> object:
        return file.write_text(f"1 {total_ns} 1\n")

    wait(0)
    watch = Watch(Offset(0, 0))
    watch.start()
    return watch, wait


def test_chunks_that_a_prompt_client_reads_together_were_sent_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, wait = watching(tmp_path, monkeypatch)
    wait(30_000)
    watch.turn(1_000_000, 41_000_000)  # waited for 40 ms, then ran 0.03 ms after the first arrival
    assert watch.read(41_050_000, 41_060_000, stamped=True, chunks=3) == 190_000
    client = watch.client()
    assert (client.bundled, client.reads) == (1, 1)


def test_chunks_that_a_late_client_reads_together_may_be_as_old_as_it_was_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, wait = watching(tmp_path, monkeypatch)
    wait(25_000_000)
    watch.turn(1_000_000, 41_000_000)  # was ready to run for 25 of the 40 ms
    assert watch.read(35_000_000, 41_100_000, stamped=True, chunks=3) == 25_200_000
    watch.turn(45_000_000, 45_001_000)  # did not wait: what is there came since the poll before
    assert watch.read(44_000_000, 45_100_000, stamped=True, chunks=2) == 3_000_000
    watch.client()


def test_lateness_that_the_kernel_does_not_explain_counts_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, _ = watching(tmp_path, monkeypatch)
    watch.turn(1_000_000, 41_000_000)
    assert watch.read(35_000_000, 41_000_000, stamped=True, chunks=3) == 34_000_000  # a stolen processor
    watch.client()
    monkeypatch.setattr("lpxdoctor.decode.watch._WAITS", "/no/such/file")
    other = Watch(Offset(0, 0))
    other.start()
    other.turn(1_000_000, 41_000_000)
    assert other.read(41_000_000, 41_000_000, stamped=True, chunks=3) == 40_000_000


def test_without_stamps_lateness_counts_from_the_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, _ = watching(tmp_path, monkeypatch)
    watch.turn(1_000_000, 11_000_000)
    watch.read(11_300_000, 11_300_000, stamped=False, chunks=1)
    watch.turn(15_000_000, 15_001_000)
    watch.read(15_500_000, 15_500_000, stamped=False, chunks=1)
    client = watch.client()
    assert list(client.lags_ns) == [300_000, 4_500_000]
    assert not client.kernel_clock


def test_what_is_read_before_the_first_poll_has_no_span() -> None:
    watch, before_ns = Watch(Offset(0, 0)), time.monotonic_ns()
    watch.start()
    assert watch.read(before_ns - 1_000_000, before_ns, stamped=True, chunks=3) == 0
    watch.client()


def test_a_server_that_sends_in_bursts_is_no_fault_of_the_client() -> None:
    bundles = tuple(Bundle(4 * n, 4, 150_000) for n in range(10))
    times = [50.0 + 16 * (n // 4) for n in range(40)]
    late = recording([sample(0, times, bundles=bundles) for _ in range(20)])
    client = bound(late)
    assert measured(late).itl.p50 == 0
    assert client.worst_share is not None
    assert 0 < client.worst_share < 0.05
