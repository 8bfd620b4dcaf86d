"""Whether a host may count as done: what its check or its baseline found in; why not, or "", out."""

from collections.abc import Mapping

from lpxdoctor.decode.profile import Profile
from lpxdoctor.evaluate import Judgement, Verdict
from lpxdoctor.fleet import NoAnswer


def of_check(answer: Judgement | NoAnswer) -> str:
    """Return why a host is not fit: it did not answer, something fails, or too little could be judged."""
    if isinstance(answer, NoAnswer):
        return f"it did not answer: {answer.reason}\n{answer.do}"
    if answer.verdict is Verdict.FAILED:
        cause, *more = (result for result in answer.found if result.failed)
        first = cause.findings[0]
        others = f"\nand {len(more)} more: {', '.join(result.check.id for result in more)}" if more else ""
        about = "" if first.subject in first.message else f"{first.subject} "
        return f"{cause.check.title} ({cause.check.id}): {about}{first.message}{others}"
    if answer.verdict is Verdict.UNKNOWN:
        ran, of = answer.coverage
        return f"too little could be judged: {ran} of {of} checks"
    return ""


def rates(profile: Profile) -> dict[str, float]:
    """Return tokens/s by the number of requests at once."""
    told = {str(rung.concurrency): rung.output_tokens_per_s for rung in profile.rungs}
    return {concurrency: rate for concurrency, rate in told.items() if rate is not None}


def of_baseline(profile: Profile, canary: Mapping[str, float], least_share: float) -> str:
    """Return why an engine is not fit: requests failed, or it is slower than the canary's, {} where it is that one."""
    for rung in profile.rungs:
        if rung.errors or not rung.requests:
            said = next(iter(rung.error_examples.values()), "no request was answered")
            return (
                f"{rung.errors} of {rung.errors + rung.requests} requests failed at {rung.concurrency} at once: {said}"
            )
    own = rates(profile)
    for concurrency, expected in canary.items():
        rate = own.get(concurrency)
        if rate is None or rate < least_share * expected:
            told = "no rate could be measured" if rate is None else f"{rate:,.0f} tokens/s"
            doubts = next(
                (rung.invalid_because for rung in profile.rungs if str(rung.concurrency) == concurrency), None
            )
            return (
                f"{told} at {concurrency} at once, where the canary has {expected:,.0f}: "
                f"less than the {least_share:.0%} of it that the policy asks for (provision.least_share)"
                + (f"\nTo be doubted: {doubts}" if doubts else "")
            )
    return ""
