"""Two profiles and a policy in, what differs between their set-ups and whether the second is slower out: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lpxdoctor.decode.noise import METRICS, Run, combined, pooled, runs
from lpxdoctor.decode.profile import Profile
from lpxdoctor.decode.resample import Change, Key, Noise, Pair, changes, noise_of
from lpxdoctor.decode.variables import Setups, setups
from lpxdoctor.policy import Compare

RESAMPLES = 2000


class Verdict(Enum):
    """What a comparison comes to."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"  # no difference beyond noise
    UNJUDGED = "unjudged"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One concurrency, or all of them together (None): changes by metric, none where it could not be compared."""

    concurrency: int | None
    verdict: Verdict
    changes: Mapping[str, Change]
    why: str  # it could not be judged, "" where it was
    repeats: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the second profile compares with the first; alone lists concurrencies that only one of them has."""

    a: Profile
    b: Profile
    setups: Setups
    noise: Noise
    rungs: tuple[Compared, ...]
    overall: Compared | None  # None where nothing could be compared
    alone: tuple[int, ...]
    verdict: Verdict
    why: str


def compare(a: Profile, b: Profile, policy: Compare, *, resamples: int = RESAMPLES) -> Comparison:
    """Tell whether b, the newer one, is slower than a."""
    sides = [_sides(profile) for profile in (a, b)]
    common = [concurrency for concurrency in sides[0] if concurrency in sides[1]]
    refused = {one: why for one in common if (why := _refusal(sides[0][one], sides[1][one]))}
    pairs = [Pair(one, sides[0][one][0], sides[1][one][0]) for one in common if one not in refused]
    noise = noise_of(combined(pooled(a.rungs), pooled(b.rungs)), policy.noise)
    found = changes(pairs, noise, false_alarm=policy.false_alarm, resamples=resamples) if pairs else {}
    rungs = tuple(_compared(one, found, refused.get(one, ""), sides, policy) for one in common)
    overall = _compared(None, found, "", sides, policy) if pairs else None
    verdict, why = _verdict(rungs, overall, _ended_early(a, b))
    return Comparison(
        a=a,
        b=b,
        setups=setups(a, b),
        noise=noise,
        rungs=rungs,
        overall=overall,
        alone=tuple(sorted(sides[0].keys() ^ sides[1].keys())),
        verdict=verdict,
        why=why,
    )


_Sides = Mapping[int, tuple[Sequence[Mapping[str, Run]], str]]  # concurrency -> its runs, why others are none


def _sides(profile: Profile) -> _Sides:
    found: dict[int, tuple[list[Mapping[str, Run]], str]] = {}
    for rung in profile.rungs:
        good, bad = found.get(rung.concurrency, ([], ""))
        run = runs(rung)
        found[rung.concurrency] = (good, f"{profile.id}: {run}") if isinstance(run, str) else ([*good, run], bad)
    return found


def _refusal(*sides: tuple[Sequence[object], str]) -> str:
    return "; ".join(why for good, why in sides if not good)


def _compared(
    concurrency: int | None, found: Mapping[Key, Change], refused: str, sides: Sequence[_Sides], policy: Compare
) -> Compared:
    repeats = [len(side[concurrency][0]) for side in sides] if concurrency else [0, 0]
    mine = {} if refused else {metric: found[concurrency, metric] for metric in METRICS}
    verdict, why = (Verdict.UNJUDGED, refused) if refused else _judged(mine, policy)
    return Compared(concurrency=concurrency, verdict=verdict, changes=mine, why=why, repeats=(repeats[0], repeats[1]))


def _judged(mine: Mapping[str, Change], policy: Compare) -> tuple[Verdict, str]:
    real = {metric: one for metric, one in mine.items() if one.is_real and abs(one.slower) >= policy.matters[metric]}
    if any(one.slower > 0 for one in real.values()):
        return Verdict.SLOWER, ""
    if real:
        return Verdict.FASTER, ""
    least = mine["tokens_per_s"].detectable
    if least > policy.slowdown:
        return Verdict.UNJUDGED, f"too much noise: only {least:.0%} slower or more would be found"
    return Verdict.SAME, ""


def _ended_early(a: Profile, b: Profile) -> str:
    """Return why b did not reach what a was measured at, "" where it did or was not to."""
    stopped = "interrupted" if b.interrupted else b.ladder.stopped if b.ladder else ""
    reached = {rung.concurrency for rung in b.rungs}
    missing = [rung.concurrency for rung in a.rungs if rung.concurrency not in reached]
    return f"{b.id} did not come to {missing[0]} at once: {stopped}" if stopped and missing else ""


def _verdict(rungs: Sequence[Compared], overall: Compared | None, ended_early: str) -> tuple[Verdict, str]:
    """Return slower where anything is; a rung that could not be compared is not passed over."""
    if overall is None:
        return Verdict.UNJUDGED, "nothing could be compared" if rungs else "the two have no concurrency in common"
    everything = (*rungs, overall)
    if any(one.verdict is Verdict.SLOWER for one in everything):
        return Verdict.SLOWER, ""
    refused = sum(not one.changes for one in rungs)
    if refused:
        return Verdict.UNJUDGED, f"{refused} of {len(rungs)} concurrencies could not be compared"
    if ended_early:
        return Verdict.UNJUDGED, ended_early
    if overall.verdict is Verdict.UNJUDGED:
        return Verdict.UNJUDGED, overall.why
    faster = any(one.verdict is Verdict.FASTER for one in everything)
    return (Verdict.FASTER if faster else Verdict.SAME), ""
