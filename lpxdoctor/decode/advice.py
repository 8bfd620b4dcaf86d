"""A comparison in, what to do next out: pure. It is read by somebody who was woken by it."""

from collections.abc import Iterator

from lpxdoctor.decode.compare import Comparison, Verdict
from lpxdoctor.decode.profile import Profile, Rung

_CLOCK_SHARE = 0.03


def advice(comparison: Comparison) -> tuple[str, ...]:
    """Return what to do, the likeliest first; nothing where all is as before."""
    if comparison.verdict is Verdict.SLOWER:
        return (*_clocks(comparison.a, comparison.b), _slower(comparison))
    return tuple(_unjudged(comparison)) if comparison.verdict is Verdict.UNJUDGED else ()


def warnings(comparison: Comparison) -> tuple[str, ...]:
    """Return what makes a comparison worth less than it looks."""
    older = comparison.b.started < comparison.a.started
    return ("The second was measured before the first: type the older one first.",) if older else ()


def _slower(comparison: Comparison) -> str:
    names = [one.name for one in comparison.setups.differing]
    if len(names) > 1:
        return f"change back one of {', '.join(names)} at a time, and measure each: lpxdoctor baseline --against"
    if names:
        return (
            f"{names[0]} is all that is known to differ: change it back and measure again, to be sure that it is that"
        )
    return (
        "the set-up is the same: look at the machine (lpxdoctor check on the engine's host), then measure once more; "
        "a slow-down that stays is none of chance"
    )


def _clocks(a: Profile, b: Profile) -> Iterator[str]:
    """Yield the GPUs that ran at a lower clock, at the most at once that both were measured at."""
    common = sorted({rung.concurrency for rung in a.rungs} & {rung.concurrency for rung in b.rungs})
    if not common:
        return
    before, now = (_lowest(profile.rungs, common[-1]) for profile in (a, b))
    for index, clock in sorted(now.items()):
        if clock < (1 - _CLOCK_SHARE) * before.get(index, 0):
            yield (
                f"GPU {index} ran at {clock} MHz, and at {before[index]} before: power limit, temperature or another "
                "card; see nvidia-smi -q -d CLOCK,POWER,PERFORMANCE there"
            )


def _lowest(rungs: tuple[Rung, ...], concurrency: int) -> dict[int, int]:
    return {
        gpu.index: gpu.sm_clock_mhz[0]
        for rung in rungs
        if rung.concurrency == concurrency
        for gpu in rung.gpus
        if gpu.sm_clock_mhz
    }


def _unjudged(comparison: Comparison) -> Iterator[str]:
    if not comparison.rungs:
        both = ",".join(str(rung) for rung in sorted({rung.concurrency for rung in comparison.a.rungs}))
        yield f"measure the second at what the first was measured at: --concurrency {both}"
        return
    refused = [row for row in comparison.rungs if not row.changes]
    if any("without samples" in row.why for row in refused):
        yield "measure the older one anew: a baseline of lpxdoctor 0.1 has nothing to judge by"
    elif refused:
        yield "measure again when what made those lines invalid is gone; lpxdoctor baseline --from ID shows them"
    elif comparison.alone and comparison.why.endswith(("interrupted", *_stops(comparison))):
        yield "measure the second to its end, or the first only as far"
    else:
        yield "more requests (--requests) or --repeats 3 in both leave less to chance"


def _stops(comparison: Comparison) -> tuple[str, ...]:
    ladder = comparison.b.ladder
    return (ladder.stopped,) if ladder and ladder.stopped else ()
