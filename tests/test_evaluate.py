"""Evaluation: one cause first, what follows blocked, unknown never healthy, a crash never hides."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.check import Check, Finding, NotApplicable, Proof, Seen, Severity, check
from lpxdoctor.errors import UsageError
from lpxdoctor.evaluate import Judgement, State, Verdict, evaluate, probes_of
from lpxdoctor.evidence import Answer, Evidence, File
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.policy import Waiver

LIGHT = File("/light")


@dataclass(frozen=True, kw_only=True)
class Light(Fact):
    colour: str
    probes = (LIGHT,)

    @classmethod
    def parse(cls, evidence: Evidence) -> "Light":
        return cls(colour=known(lambda: evidence.text(LIGHT)))


def making(
    id_: str, severity: Severity = Severity.FAIL, after: tuple[str, ...] = (), *, when: str = "red"
) -> Check[Any]:
    @check(id_, severity, layer="hardware", after=after)
    def made(light: Light) -> Iterator[Finding]:
        """Something is wrong.

        Why: because.
        Fix: mend it.
        """
        if light.colour == when:
            yield Finding(f"the light is {when}")

    return made


@check("host.crashes", Severity.FAIL, layer="hardware")
def crashes(light: Light) -> Iterator[Finding]:
    """It has a defect."""
    yield Finding(str(1 // (len(light.colour) - len(light.colour))))


@check("host.elsewhere", Severity.FAIL, layer="hardware")
def elsewhere(light: Light) -> Iterator[Finding]:
    """It has no meaning here."""
    if light.colour:
        raise NotApplicable("no such thing here")
    yield Finding("never")


def judge(*checks: Check[...], colour: str | None = "red", **changes: Any) -> Judgement:
    answer = Answer(colour) if colour else Answer(failure="denied", reason="/light: Permission denied")
    evidence = Evidence("gpu-1", {LIGHT.key: answer})
    rules = policy.load()
    fields = {name: changes.get(name, getattr(rules, name)) for name in rules.__struct_fields__}
    return evaluate(catalog.ordered(checks), evidence, policy.Policy(**fields), datetime.date(2026, 11, 29))


def judge_excerpt(*checks: Check[...], proofs: tuple[Proof, ...], judged: tuple[str, ...] = ()) -> Judgement:
    """Judge a text by what it states, and with the checks that are trusted with excerpts; the light is red."""
    evidence = Evidence("", {LIGHT.key: Answer("red")})
    return evaluate(catalog.ordered(checks), evidence, policy.load(), proofs=proofs, judged=judged)


def stated(id_: str, rank: int = 0, severity: Severity | None = None) -> Proof:
    return Proof(id_, Finding(f"a line says so of {id_}", seen=(Seen("line 1", id_, ""),)), rank, severity)


def state(judgement: Judgement, id_: str) -> State:
    return next(result.state for result in judgement.results if result.check.id == id_)


def test_what_follows_from_a_failure_is_blocked_by_its_root() -> None:
    judgement = judge(making("host.c", after=("host.b",)), making("host.b", after=("host.a",)), making("host.a"))
    assert [result.check.id for result in judgement.found] == ["host.a"]
    assert judgement.blocked_by("host.a") == ("host.b", "host.c")
    assert judgement.verdict is Verdict.FAILED


def test_a_warning_blocks_nothing() -> None:
    judgement = judge(making("host.a", Severity.WARN), making("host.b", after=("host.a",)))
    assert [result.check.id for result in judgement.found] == ["host.b", "host.a"]


def test_what_cannot_be_read_is_unknown_with_the_probes_reason_and_never_healthy() -> None:
    judgement = judge(making("host.a"), colour=None)
    assert judgement.of(State.UNKNOWN)[0].reason == "file:/light: /light: Permission denied"
    assert judgement.coverage == (0, 1)
    assert judgement.verdict is Verdict.UNKNOWN


def test_nothing_checked_is_not_healthy() -> None:
    assert judge().verdict is Verdict.UNKNOWN
    assert judge(elsewhere).verdict is Verdict.UNKNOWN


def test_a_crash_is_reported_as_ours_and_takes_no_other_check_along() -> None:
    judgement = judge(crashes, making("host.a", when="green"))
    assert state(judgement, "host.crashes") is State.CRASHED
    assert state(judgement, "host.a") is State.PASS
    assert judgement.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [(Severity.FAIL, Verdict.FAILED), (Severity.WARN, Verdict.WARNING), (Severity.INFO, Verdict.HEALTHY)],
)
def test_the_verdict_is_the_worst_severity(severity: Severity, verdict: Verdict) -> None:
    assert judge(making("host.a", severity)).verdict is verdict


def test_a_site_changes_severities_and_disables_checks() -> None:
    assert judge(making("host.a"), severity={"host.a": "info"}).verdict is Verdict.HEALTHY
    assert judge(making("host.a"), making("host.b", when="green"), disabled=("host.a",)).verdict is Verdict.HEALTHY


def test_a_waiver_holds_until_its_day() -> None:
    waiver = Waiver(id="host.a", reason="ordered", until=datetime.date(2026, 11, 29))
    assert state(judge(making("host.a"), waivers=(waiver,)), "host.a") is State.WAIVED
    over = Waiver(id="host.a", reason="ordered", until=datetime.date(2026, 11, 28))
    assert state(judge(making("host.a"), waivers=(over,)), "host.a") is State.FOUND
    other = Waiver(id="host.a", reason="ordered", until=datetime.date(2027, 1, 1), subject="GPU 3")
    assert state(judge(making("host.a"), waivers=(other,)), "host.a") is State.FOUND


def test_probes_are_asked_once() -> None:
    assert probes_of([making("host.a"), making("host.b")]) == (LIGHT,)


def test_the_order_given_stays_but_for_what_must_come_before() -> None:
    given = [making("host.a", after=("driver.z",)), making("host.b"), making("driver.z"), making("cuda.c")]
    assert [check.id for check in catalog.ordered(given)] == ["driver.z", "host.a", "host.b", "cuda.c"]


def test_failures_stand_in_the_order_of_the_chain_whatever_their_depth() -> None:
    judgement = judge(
        making("container.c"),
        making("driver.b", after=("host.fine",)),
        making("host.fine", when="green"),
        making("cuda.x"),
    )
    assert [result.check.id for result in judgement.found] == ["driver.b", "cuda.x", "container.c"]


def test_circles_unknown_and_double_ids_are_refused() -> None:
    with pytest.raises(UsageError, match=r"circle: host\.\w -> host\.\w"):
        catalog.ordered([making("host.a", after=("host.b",)), making("host.b", after=("host.a",))])
    with pytest.raises(UsageError, match="no check has that id"):
        catalog.ordered([making("host.a", after=("host.x",))])
    with pytest.raises(UsageError, match="Two checks have the id"):
        catalog.ordered([making("host.a"), making("host.a")])


def test_a_fault_that_a_text_states_is_found_with_its_line_and_blocks_what_follows() -> None:
    checks = (making("host.a"), making("host.b", after=("host.a",)))
    judgement = judge_excerpt(*checks, proofs=(stated("host.a"), stated("host.b")))
    assert [result.check.id for result in judgement.found] == ["host.a"]
    assert judgement.found[0].findings[0].seen[0].value == "host.a"
    assert judgement.blocked_by("host.a") == ("host.b",)


def test_what_is_stated_does_not_wait_for_what_is_only_guessed() -> None:
    checks = (making("host.a"), making("host.b", after=("host.a",)))
    judgement = judge_excerpt(*checks, proofs=(stated("host.a", rank=1), stated("host.b")))
    assert [result.check.id for result in judgement.found] == ["host.b", "host.a"]


def test_what_is_only_possible_is_no_failure_and_blocks_nothing() -> None:
    checks = (making("host.a"), making("host.b", after=("host.a",)))
    judgement = judge_excerpt(*checks, proofs=(stated("host.a", rank=2), stated("host.b", rank=2)))
    assert [(result.check.id, result.severity) for result in judgement.found] == [
        ("host.a", Severity.WARN),
        ("host.b", Severity.WARN),
    ]
    assert judgement.verdict is Verdict.WARNING


def test_a_text_may_show_worse_than_the_check_warns_of() -> None:
    judgement = judge_excerpt(making("host.a", Severity.WARN), proofs=(stated("host.a", severity=Severity.FAIL),))
    assert judgement.verdict is Verdict.FAILED


def test_what_a_text_states_and_what_it_shows_are_one_finding() -> None:
    judgement = judge_excerpt(making("host.a"), proofs=(stated("host.a", rank=1),), judged=("host.a",))
    assert [result.rank for result in judgement.found] == [0]
    assert [finding.message for finding in judgement.found[0].findings] == ["a line says so of host.a"]


def test_an_excerpt_makes_nothing_healthy() -> None:
    checks = (making("host.a", when="green"), making("host.b", when="green"), elsewhere)
    judgement = judge_excerpt(*checks, proofs=(), judged=("host.a", "host.elsewhere"))
    assert {result.state for result in judgement.results} == {State.UNKNOWN, State.NOT_APPLICABLE}
    assert judgement.verdict is Verdict.UNKNOWN


def test_only_checks_that_are_trusted_with_an_excerpt_judge_it() -> None:
    judgement = judge_excerpt(making("host.a"), making("host.b"), proofs=(), judged=("host.b",))
    assert [result.check.id for result in judgement.found] == ["host.b"]


def test_proofs_count_beside_the_whole_evidence_of_a_host() -> None:
    checks = catalog.ordered([making("host.a", when="green"), making("host.b")])
    evidence = Evidence("gpu-1", {LIGHT.key: Answer("red")})
    judgement = evaluate(checks, evidence, policy.load(), proofs=(stated("host.a"),))
    assert [result.check.id for result in judgement.found] == ["host.a", "host.b"]
    assert not judgement.excerpt
