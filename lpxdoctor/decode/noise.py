"""Rungs in, their runs in equal blocks and the variance between repeats out; pure arithmetic.

A run is one rung of one profile; runs of the same concurrency in a profile are repeats.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, variance

from lpxdoctor.decode.kept import RunVariance
from lpxdoctor.decode.profile import Rung

METRICS = ("tokens_per_s", "tpot", "ttft")
BLOCKS = 16
LEAST_BLOCKS = 4
_MOST_ALIKE = 0.8
ENOUGH_DEGREES = 4  # of freedom: two rungs measured three times, for instance


@dataclass(frozen=True)
class Run:
    """One metric of one run: its blocks in the order of time, tokens/s or milliseconds each."""

    blocks: tuple[float, ...]

    @property
    def value(self) -> float:
        """The mean of the blocks."""
        return fmean(self.blocks)

    @property
    def stretch(self) -> float:
        """How much larger the mean's variance is than that of independent blocks.

        Neighbours are alike where an engine has slow and fast spells: (1 + r) / (1 - r) for the correlation r of
        neighbours, as for a first-order autoregressive series, and n / (n - 1) as blocks are few. An r found in few
        blocks is too low by (1 + 4 r) / n. Source: Marriott and Pope, Bias in the estimation of autocorrelations, 1954.
        """
        n, mean = len(self.blocks), self.value
        apart = [block - mean for block in self.blocks]
        total = math.fsum(one * one for one in apart)
        seen = math.fsum(one * two for one, two in pairwise(apart)) / total if total else 0.0
        r = min(max((seen + 1 / n) / (1 - 4 / max(n, 8)), 0.0), _MOST_ALIKE)
        return (1 + r) / (1 - r) * n / (n - 1)

    @property
    def variance(self) -> float:
        """The variance of the value in relation to it, from its own blocks."""
        n = len(self.blocks)
        spread = variance(self.blocks) * (n - 1) / n
        return spread * self.stretch / n / self.value**2


def runs(rung: Rung) -> Mapping[str, Run] | str:
    """Return the run by metric, or why there is none."""
    if not rung.valid:
        return rung.invalid_because or "invalid"
    samples = rung.samples
    if samples is None:
        return "kept by lpxdoctor 0.1, without samples"
    if samples.block_s is None or len(samples.tpot_ms) < LEAST_BLOCKS:
        return f"fewer than {LEAST_BLOCKS} requests"
    rates = tuple(tokens / samples.block_s for tokens in samples.block_tokens)
    found = {
        "tokens_per_s": Run(rates),
        "tpot": Run(_blocks(samples.tpot_ms)),
        "ttft": Run(_blocks(samples.ttft_ms)),
    }
    if not all(run.value > 0 for run in found.values()):
        return "a metric of it is nought"
    return found


def _blocks(values: Sequence[float]) -> tuple[float, ...]:
    """Return the medians of equal parts in the order of sending: a single late answer moves none much."""
    count = min(BLOCKS, len(values))
    edges = [len(values) * n // count for n in range(count + 1)]
    return tuple(median(values[low:high]) for low, high in pairwise(edges))


def pooled(rungs: Sequence[Rung]) -> dict[str, RunVariance] | None:
    """Return the variance between repeats by metric, None where no rung was repeated."""
    groups: dict[int, list[Mapping[str, Run]]] = {}
    for rung in rungs:
        found = runs(rung)
        if not isinstance(found, str):
            groups.setdefault(rung.concurrency, []).append(found)
    repeated = [group for group in groups.values() if len(group) > 1]
    if not repeated:
        return None
    degrees = sum(len(group) - 1 for group in repeated)
    return {
        metric: RunVariance(
            variance=math.fsum(_squares([run[metric].value for run in group]) for group in repeated) / degrees,
            degrees=degrees,
        )
        for metric in METRICS
    }


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.fsum((value / mean - 1) ** 2 for value in values)


def combined(*parts: dict[str, RunVariance] | None) -> dict[str, RunVariance]:
    """Pool what several profiles say; empty where none was repeated."""
    known = [part for part in parts if part]
    if not known:
        return {}
    degrees = sum(part[METRICS[0]].degrees for part in known)
    return {
        metric: RunVariance(
            variance=math.fsum(part[metric].variance * part[metric].degrees for part in known) / degrees,
            degrees=degrees,
        )
        for metric in METRICS
    }
