"""Whole hosts as they answered: what each is judged to be, whatever the wording of the report."""

from pathlib import Path

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import State, Verdict, evaluate
from lpxdoctor.evidence import from_json

HOSTS = Path("tests/hosts")
EXPECTED = {
    "h200-cdi": (Verdict.HEALTHY, ()),
    "h200-cdi-serving": (Verdict.HEALTHY, ()),
    "no-gpu": (Verdict.FAILED, ("host.no-gpu",)),
}


def test_every_recorded_host_is_expected_to_be_something() -> None:
    assert {path.parent.name for path in HOSTS.glob("*/evidence.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_host_is_judged_as_it_was(name: str) -> None:
    evidence = from_json((HOSTS / name / "evidence.json").read_text(encoding="utf-8"))
    judgement = evaluate(catalog.load(None), evidence, policy.load())
    verdict, failures = EXPECTED[name]
    assert judgement.verdict is verdict
    assert tuple(result.check.id for result in judgement.results if result.failed) == failures
    assert not judgement.of(State.CRASHED)
    ran, of = judgement.coverage
    assert verdict is Verdict.FAILED or ran >= 0.9 * of
    # Without a GPU all that needs one waits for it.
    waiting = judgement.of(State.BLOCKED)
    assert {result.blocked_by for result in waiting} == set(failures)
