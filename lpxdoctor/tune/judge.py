"""A candidate's profile and those of what was best, measured before and after it, in; an outcome and a gain out: pure.

A machine that gets quieter makes whatever is measured later look faster. So a candidate must beat the best arguments
of before twice, measured ahead of it and once more behind it: drift in one direction favours it at one of the two only.
A gain that noise may have made is looked at with both measured twice, in turns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import msgspec

from lpxdoctor.decode.compare import Comparison, Verdict, compare
from lpxdoctor.decode.noise import pooled
from lpxdoctor.decode.profile import Profile
from lpxdoctor.policy import Policy, Tune
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy

Pair = tuple[Profile, Profile]  # of the same settings, the older first


@dataclass(frozen=True)
class Judged:
    """An outcome of state's and why; the gain in tokens/s over all concurrencies and what noise and drift leave of it.

    gain lies in the middle of its interval as a ratio: 1 + gain times or divided by 1 + within.
    """

    outcome: str
    why: str
    gain: float | None
    within: float | None

    def may_gain(self, policy: Tune) -> bool:
        """Whether it gains, or would if noise could not have made as much."""
        is_noise = self.outcome == kept.NO_GAIN and not self.why
        return self.outcome == kept.KEPT or (is_noise and self.gain is not None and self.gain >= policy.least_gain)


def judged(before: Sequence[Profile], profile: Profile, accuracy: Accuracy, policy: Policy) -> Judged:
    """Hold a profile against one or more of what it is to beat; it is kept where it beats each of them."""
    comparisons = [compare(one, profile, policy.compare) for one in before]
    found = [decided(comparison, accuracy, policy) for comparison in comparisons]
    outcome, why = next((one for one in found if one[0] != kept.KEPT), (kept.KEPT, ""))
    changes = [one.overall.changes["tokens_per_s"] for one in comparisons if one.overall]
    if len(changes) < len(before) or not changes:
        return Judged(outcome, why, None, None)
    low = min(math.log(one.b / one.a) - one.within for one in changes)
    high = max(math.log(one.b / one.a) + one.within for one in changes)
    if len(before) > 1 and outcome == kept.NO_GAIN:
        outcome, why = kept.NOT_CONFIRMED, why or "the engine without it was as fast when it was measured once more"
    return Judged(outcome, why, math.expm1((low + high) / 2), math.expm1((high - low) / 2))


def judged_twice(before: Pair, twice: Pair, accuracy: Accuracy, policy: Policy) -> Judged:
    """Hold two profiles against two of what they are to beat, taken in turns.

    All four together must tell a gain from noise. A machine that changed in between makes two of them alike: so each
    must gain on the one ahead of it too, as it was to gain on the one behind it.
    """
    verdict = judged((merged(before),), merged(twice), accuracy, policy)
    if verdict.outcome == kept.KEPT and not judged((before[1],), twice[1], accuracy, policy).may_gain(policy.tune):
        return replace(verdict, outcome=kept.NOT_CONFIRMED, why="it gained the first time only")
    if verdict.outcome == kept.NO_GAIN:
        return replace(verdict, why=verdict.why or "measured twice, it gained no more than noise may make")
    return verdict


def merged(profiles: Pair) -> Profile:
    """Return two profiles of the same settings as repeats in one, the newer."""
    older, newer = profiles
    rungs = (*older.rungs, *newer.rungs)
    return msgspec.structs.replace(newer, rungs=rungs, pooled_variance=pooled(rungs))


def decided(comparison: Comparison, accuracy: Accuracy, policy: Policy) -> tuple[str, str]:
    """Return the outcome of a candidate by one comparison, and why."""
    if accuracy.wrong:
        return kept.INACCURATE, accuracy.wrong
    overall = comparison.overall
    broken = [row for row in comparison.rungs if not row.changes]
    if overall is None or broken:
        return kept.UNJUDGED, "; ".join(f"{row.concurrency} at once: {row.why}" for row in broken) or comparison.why
    slower = [
        row for row in comparison.rungs if row.verdict is Verdict.SLOWER and row.changes["tokens_per_s"].slower > 0
    ]
    if slower:
        return kept.NO_GAIN, f"slower at {', '.join(str(row.concurrency) for row in slower)}"
    rate = overall.changes["tokens_per_s"]
    if rate.is_real and rate.b / rate.a - 1 >= policy.tune.least_gain:
        return kept.KEPT, ""
    return kept.NO_GAIN, ""


def rates(profile: Profile) -> dict[int, float]:
    """Return tokens/s by concurrency, the mean of its repeats."""
    found = dict[int, list[float]]()
    for rung in profile.rungs:
        if rung.output_tokens_per_s is not None:
            found.setdefault(rung.concurrency, []).append(rung.output_tokens_per_s)
    return {concurrency: fmean(each) for concurrency, each in found.items()}
