"""Checks, facts and policy in; a result for each check out, with what follows from a failure BLOCKED by it."""

import datetime
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lpxdoctor.check import CHAIN, Check, Finding, NotApplicable, Proof, Severity
from lpxdoctor.errors import DoctorError
from lpxdoctor.evidence import Evidence, Probe, Unreadable
from lpxdoctor.facts.fact import Fact
from lpxdoctor.policy import Policy, Waiver


class State(Enum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - no password
    FOUND = "found"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"
    CRASHED = "crashed"
    NOT_APPLICABLE = "not applicable"
    WAIVED = "waived"


@dataclass(frozen=True)
class Result:
    """One check's end: what it found, or by which failed check it is blocked, or why it could not be judged."""

    check: Check[...]
    state: State
    severity: Severity
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    blocked_by: str = ""
    waiver: Waiver | None = None
    rank: int = 0  # of what was found: 0 where it was seen or stated, higher where something only points to it

    @property
    def failed(self) -> bool:
        """Whether what follows from this check is blocked by it."""
        return self.state is State.FOUND and self.severity is Severity.FAIL


class Verdict(Enum):
    """What a host is; the number is the exit status of check."""

    HEALTHY = 0
    WARNING = 1
    FAILED = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Judgement:
    """All results of one host, the facts that they rest on, and how much of what applies was judged.

    excerpt: whether it rests on what somebody chose to show, which can prove a fault and never that all is well.
    """

    host: str
    facts: Mapping[type[Fact], Fact]
    results: tuple[Result, ...]
    min_coverage: float
    excerpt: bool = False

    def of(self, *states: State) -> tuple[Result, ...]:
        """The results in these states."""
        return tuple(result for result in self.results if result.state in states)

    @property
    def found(self) -> tuple[Result, ...]:
        """What was found, the root cause first: failures before warnings, earlier in the chain before later.

        What is seen comes before what something only points to; within one link of the chain, what explains more of the
        rest comes first.
        """
        severities = list(Severity)

        def rank(result: Result) -> tuple[int, int, int, int]:
            word = result.check.id.partition(".")[0]
            link = CHAIN.index(word) if word in CHAIN else len(CHAIN)  # a site's checks may have words of their own
            return severities.index(result.severity), result.rank, link, -len(self.blocked_by(result.check.id))

        return tuple(sorted(self.of(State.FOUND), key=rank))

    def blocked_by(self, id_: str) -> tuple[str, ...]:
        """The ids of the checks that wait for a failed one."""
        return tuple(result.check.id for result in self.results if result.blocked_by == id_)

    @property
    def coverage(self) -> tuple[int, int]:
        """(checks that were judged, checks that apply)."""
        applicable = len(self.results) - len(self.of(State.NOT_APPLICABLE))
        return len(self.of(State.PASS, State.FOUND, State.WAIVED)), applicable

    @property
    def status(self) -> int:
        """The exit status: the verdict's number, or that of a defect where a check crashed and nothing failed."""
        defect = self.of(State.CRASHED) and self.verdict is not Verdict.FAILED
        return DoctorError.exit_code if defect else self.verdict.value

    @property
    def verdict(self) -> Verdict:
        """Failed where something fails; never healthy, nor only a warning, where too little could be judged."""
        ran, of = self.coverage
        if any(result.failed for result in self.results):
            return Verdict.FAILED
        if self.excerpt:
            warned = any(result.severity is Severity.WARN for result in self.found)
            return Verdict.WARNING if warned else Verdict.UNKNOWN
        if ran == 0 or ran < self.min_coverage * of or self.of(State.CRASHED):
            return Verdict.UNKNOWN
        warned = any(result.severity is Severity.WARN for result in self.found)
        return Verdict.WARNING if warned else Verdict.HEALTHY


def facts_of(checks: Iterable[Check[...]]) -> tuple[type[Fact], ...]:
    """Return the facts that checks need, each once."""
    kinds = {kind: None for check in checks for kind in check.parameters.values() if issubclass(kind, Fact)}
    return tuple(kinds)


def probes_of(checks: Iterable[Check[...]]) -> tuple[Probe, ...]:
    """Return the probes whose answers checks need, each once."""
    return tuple({probe.key: probe for kind in facts_of(checks) for probe in kind.probes}.values())


def evaluate(
    checks: Iterable[Check[...]],
    evidence: Evidence,
    policy: Policy,
    today: datetime.date | None = None,
    *,
    proofs: Iterable[Proof] = (),
    judged: Collection[str] | None = None,
) -> Judgement:
    """Judge a host.

    Args:
        checks: in an order in which each stands behind what it follows from, as catalog.load returns them.
        evidence: what the host answered.
        policy: thresholds, and what is disabled, waived or of another severity here.
        today: until when a waiver holds is compared with it; without it no waiver holds.
        proofs: what a text says of faults; they count beside what the checks find themselves.
        judged: of an excerpt, the ids of the checks that may judge it, each of what is there and none of what is not;
            None where the evidence is the host's own.
    """
    wanted = [check for check in checks if check.id not in policy.disabled]
    facts = {kind: kind.parse(evidence) for kind in facts_of(wanted)}
    proven = {proof.id: proof for proof in proofs}
    results: dict[str, Result] = {}
    for check in wanted:
        severity = Severity(policy.severity.get(check.id, check.severity.value))
        proof = proven.get(check.id)
        # What is proven more directly than a fault before it does not wait for that one.
        limit = proof.rank if proof else None
        root = next((root for earlier in check.after if (root := _root(results, earlier, limit))), "")
        if root:
            results[check.id] = Result(check, State.BLOCKED, severity, blocked_by=root)
            continue
        if judged is None:
            result = _judge(check, severity, facts, policy)
        else:
            result = _judge_excerpt(check, severity, facts, policy, judged)
        results[check.id] = _waived(_with(result, proof), policy, today)
    found = tuple(results.values())
    return Judgement(evidence.host, facts, found, policy.limits.min_coverage, excerpt=judged is not None)


_EXCERPT = "what was given does not show it"


def _with(result: Result, proof: Proof | None) -> Result:
    """Return the result with what a text proves added to it; a fault that both show stays one finding."""
    if proof is None:
        return result
    severity = proof.severity or result.severity
    if proof.rank > 1 and severity is Severity.FAIL:  # what is only possible is no failure
        severity = Severity.WARN
    own = result.findings
    seen = tuple(seen for finding in own for seen in finding.seen)
    finding = replace(proof.finding, subject=own[0].subject if own else "", seen=(*proof.finding.seen, *seen))
    rank = 0 if own else proof.rank
    return replace(result, state=State.FOUND, severity=severity, findings=(finding,), reason="", rank=rank)


def _root(results: Mapping[str, Result], id_: str, limit: int | None) -> str:
    """Return the id of the failure at the root of a result, "" where it neither failed nor is blocked.

    With a limit, a failure of a higher rank counts as none.
    """
    result = results.get(id_)
    if result is None:
        return ""
    root = result.check.id if result.failed else result.blocked_by
    return "" if root and limit is not None and results[root].rank > limit else root


def _judge(check: Check[...], severity: Severity, facts: Mapping[type[Fact], Fact], policy: Policy) -> Result:
    """Run one check. What it yielded before it met something unreadable counts."""
    arguments = {name: policy if kind is Policy else facts[kind] for name, kind in check.parameters.items()}
    findings: list[Finding] = []
    reason, state = "", State.PASS
    try:
        findings.extend(check(**arguments))
    except Unreadable as unreadable:
        reason, state = str(unreadable), State.UNKNOWN
    except NotApplicable as why:
        reason, state = str(why), State.NOT_APPLICABLE
    except Exception as error:  # noqa: BLE001 - a defect in one check is reported as ours and takes no other along
        reason, state = f"{type(error).__name__}: {error}", State.CRASHED
    return Result(check, State.FOUND if findings else state, severity, tuple(findings), reason)


def _judge_excerpt(
    check: Check[...],
    severity: Severity,
    facts: Mapping[type[Fact], Fact],
    policy: Policy,
    judged: Collection[str],
) -> Result:
    """Run one check where an excerpt lets it judge; what an excerpt does not show is unknown and never well."""
    unknown = Result(check, State.UNKNOWN, severity, reason=_EXCERPT)
    if check.id not in judged:
        return unknown
    result = _judge(check, severity, facts, policy)
    return unknown if result.state is State.PASS else result


def _waived(result: Result, policy: Policy, today: datetime.date | None) -> Result:
    """Return the result WAIVED where a waiver that still holds covers all that it found."""
    if result.state is not State.FOUND or today is None:
        return result
    for waiver in policy.waivers:
        covers = waiver.id == result.check.id and today <= waiver.until
        if covers and all(waiver.subject in ("", finding.subject) for finding in result.findings):
            return replace(result, state=State.WAIVED, waiver=waiver)
    return result
