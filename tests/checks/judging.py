"""Run one check by its id on facts given as values."""

from functools import lru_cache
from typing import Any

from lpxdoctor import bundled, policy
from lpxdoctor.catalog import load_file
from lpxdoctor.check import Check, Finding
from lpxdoctor.facts.symptoms import Symptoms
from lpxdoctor.policy import Policy


@lru_cache(maxsize=1)
def by_id() -> dict[str, Check[...]]:
    return {check.id: check for path in sorted(bundled.CHECKS.glob("*.py")) for check in load_file(path)}


@lru_cache(maxsize=1)
def bundled_policy() -> Policy:
    return policy.load()


def found(check_id: str, *given: Any) -> list[Finding]:
    """Return what a check finds in these facts; where none are given, by the bundled policy and with nothing told."""
    facts = {type(fact): fact for fact in (bundled_policy(), Symptoms(symptoms=()), *given)}
    check = by_id()[check_id]
    return list(check(**{name: facts[kind] for name, kind in check.parameters.items()}))
