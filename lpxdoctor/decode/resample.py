"""The runs of two profiles in, how far apart they are against what noise alone does out: a bootstrap with a fixed seed.

Every metric of every rung, and each metric over all rungs, is one statistic T = change / its standard error. The
largest T of all, when nothing changed, comes from resampling; its quantile is the threshold for each, so that all
comparisons of a report together give a false alarm as rarely as they are meant to (Westfall and Young 1993, maxT).
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from operator import itemgetter
from statistics import fmean
from typing import TypeVar

from lpxdoctor.decode.kept import RunVariance
from lpxdoctor.decode.noise import ENOUGH_DEGREES, METRICS, Run

_T = TypeVar("_T")
Side = Sequence[Mapping[str, Run]]  # the runs of one rung in one profile
Key = tuple[int | None, str]  # concurrency, None for all of them, and metric
_Z99 = 2.326348
_LEAST_ERROR = 1e-9  # repeats that are equal to the last digit tell of no noise at all
_SIGN = {"tokens_per_s": -1, "tpot": 1, "ttft": 1}  # of what is slower


@dataclass(frozen=True)
class Pair:
    """One concurrency in both profiles; at least one run on each side."""

    concurrency: int
    a: Side
    b: Side


@dataclass(frozen=True)
class Change:
    """How much slower b is than a, as a share of the time (below 0: faster), and what noise leaves of that.

    within is the half-width of its interval; detectable is the least slow-down that would be found 99 times in 100.
    """

    a: float
    b: float
    slower: float
    within: float
    detectable: float

    @property
    def is_real(self) -> bool:
        """Whether it is beyond what noise does."""
        return abs(math.log1p(self.slower)) > self.within


@dataclass(frozen=True)
class Noise:
    """How far runs of the same set-up lie apart: standard deviations by metric, and whether they were measured."""

    by_metric: Mapping[str, float]
    degrees: int  # of freedom; 0: assumed


def noise_of(pooled: Mapping[str, RunVariance], assumed: Mapping[str, float]) -> Noise:
    """Return what is measured where that has enough degrees of freedom, else what is assumed."""
    degrees = min((part.degrees for part in pooled.values()), default=0)
    if degrees < ENOUGH_DEGREES:
        return Noise(assumed, 0)
    return Noise({metric: math.sqrt(part.variance) for metric, part in pooled.items()}, degrees)


def changes(pairs: Sequence[Pair], noise: Noise, *, false_alarm: float, resamples: int) -> Mapping[Key, Change]:
    """Compare the pairs; false_alarm is the chance that any change is taken for real when there is none."""
    values: dict[Key, tuple[float, float]] = {
        (pair.concurrency, metric): (_mean(pair.a, metric), _mean(pair.b, metric))
        for pair in pairs
        for metric in METRICS
    }
    errors: dict[Key, float] = {
        (pair.concurrency, metric): max(
            math.hypot(_error(pair.a, metric, noise), _error(pair.b, metric, noise)), _LEAST_ERROR
        )
        for pair in pairs
        for metric in METRICS
    }
    for metric in METRICS:
        each = [values[pair.concurrency, metric] for pair in pairs]
        values[None, metric] = (_geometric([a for a, _ in each]), _geometric([b for _, b in each]))
        errors[None, metric] = math.hypot(*(errors[pair.concurrency, metric] for pair in pairs)) / len(pairs)
    threshold = _threshold(pairs, noise, errors, false_alarm, resamples)
    return {
        key: Change(
            a=a,
            b=b,
            slower=(b / a) ** _SIGN[key[1]] - 1,
            within=threshold * errors[key],
            detectable=math.expm1((threshold + _Z99) * errors[key]),
        )
        for key, (a, b) in values.items()
    }


def _mean(side: Side, metric: str) -> float:
    return fmean(run[metric].value for run in side)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))


def _error(side: Side, metric: str, noise: Noise) -> float:
    """Return the standard error of a side's mean in relation to it: repeats tell all of it, else blocks tell a part."""
    between = noise.by_metric[metric] ** 2
    within = 0.0 if noise.degrees else fmean(run[metric].variance for run in side)
    return math.sqrt((between + within) / len(side))


def _threshold(
    pairs: Sequence[Pair], noise: Noise, errors: Mapping[Key, float], false_alarm: float, resamples: int
) -> float:
    """Return what the largest T stays below with the probability 1 - false_alarm when nothing changed."""
    draws = _Draws(resamples)
    largest = [-math.inf] * resamples
    sums = {metric: [0.0] * resamples for metric in METRICS}
    shared = draws.scales(noise.degrees) if noise.degrees else None
    for pair in pairs:
        scales = shared or draws.scales(_degrees(pair))
        sides = [draws.deviations(side, noise) for side in (pair.a, pair.b)]
        for metric in METRICS:
            error, sign = errors[pair.concurrency, metric], _SIGN[metric]
            moved = [
                sign * (b - a) * scale for a, b, scale in zip(sides[0][metric], sides[1][metric], scales, strict=True)
            ]
            largest = [max(most, one / error) for most, one in zip(largest, moved, strict=True)]
            sums[metric] = [total + one for total, one in zip(sums[metric], moved, strict=True)]
    for metric, total in sums.items():
        error = errors[None, metric] * len(pairs)
        largest = [max(most, one / error) for most, one in zip(largest, total, strict=True)]
    return sorted(largest)[min(resamples - 1, math.ceil((1 - false_alarm) * resamples))]


def _degrees(pair: Pair) -> int:
    """Return the degrees of freedom behind a pair's standard error."""
    return sum(min(len(one.blocks) for one in run.values()) - 1 for side in (pair.a, pair.b) for run in side)


class _Draws:
    """Chance, the same in every comparison: tables that each use reads from another place."""

    def __init__(self, resamples: int) -> None:
        self._count = resamples
        self._chance = random.Random(resamples)  # noqa: S311 - the same verdict for the same files

    def deviations(self, side: Side, noise: Noise) -> Mapping[str, list[float]]:
        """Return by metric how far resampled means of a side lie from its mean, in relation to it."""
        between = {metric: sd / math.sqrt(len(side)) for metric, sd in noise.by_metric.items()}
        decode, first = self._turned(_normals(self._count)), self._turned(_normals(self._count))
        # A run that is slow for itself has a longer TPOT and fewer tokens/s by one and the same luck.
        luck = {"tokens_per_s": [-one for one in decode], "tpot": decode, "ttft": first}
        found = {metric: [between[metric] * one for one in luck[metric]] for metric in METRICS}
        for run in () if noise.degrees else side:
            picks: dict[int, list[Callable[[Sequence[float]], tuple[float, ...]]]] = {}
            for metric in METRICS:
                blocks = _scaled(run[metric], len(side))
                rows = picks.setdefault(len(blocks), self._turned(_picks(len(blocks), self._count)))
                found[metric] = [one + sum(row(blocks)) for one, row in zip(found[metric], rows, strict=True)]
        return found

    def scales(self, degrees: int) -> list[float]:
        """Return how far off an estimated standard error is, as Student's t has it."""
        return self._turned(_scales(degrees, self._count))

    def _turned(self, table: Sequence[_T]) -> list[_T]:
        return list(islice(cycle(table), start := self._chance.randrange(self._count), start + self._count))


def _scaled(run: Run, of: int) -> list[float]:
    """Return a run's blocks as parts of the deviation of a side's mean."""
    size = math.sqrt(run.stretch) / len(run.blocks) / of
    return [(block / run.value - 1) * size for block in run.blocks]


@cache
def _normals(count: int) -> Sequence[float]:
    chance = random.Random(1)  # noqa: S311
    return [chance.gauss(0, 1) for _ in range(count)]


@cache
def _scales(degrees: int, count: int) -> Sequence[float]:
    chance = random.Random(2)  # noqa: S311
    return [math.sqrt(degrees / chance.gammavariate(degrees / 2, 2)) for _ in range(count)]


@cache
def _picks(blocks: int, count: int) -> Sequence[Callable[[Sequence[float]], tuple[float, ...]]]:
    chance = random.Random(3)  # noqa: S311
    return [itemgetter(*chance.choices(range(blocks), k=blocks)) for _ in range(count)]
