"""The gates: what keeps a host from counting as done."""

import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.decode.profile import Profile
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import from_json
from lpxdoctor.fleet import NoAnswer
from lpxdoctor.provision import gate
from tests.decode.test_profile import PROFILE

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
SHARE = policy.load().provision.least_share


def checked(host: str) -> str:
    evidence = from_json((HOSTS / host / "evidence.json").read_text())
    return gate.of_check(evaluate(catalog.load(None), evidence, policy.load(), datetime.date(2026, 11, 29)))


def with_rung(**changes: Any) -> Profile:
    return msgspec.structs.replace(PROFILE, rungs=(msgspec.structs.replace(PROFILE.rungs[0], **changes),))


def test_a_recorded_server_that_is_well_passes() -> None:
    assert checked("h200-cdi") == ""


def test_a_recorded_machine_without_a_gpu_does_not() -> None:
    assert "(host.no-gpu)" in checked("no-gpu")


def test_a_host_that_does_not_answer_does_not() -> None:
    assert gate.of_check(NoAnswer("connect timed out", "Is it on?")) == (
        "it did not answer: connect timed out\nIs it on?"
    )


def test_a_host_of_which_too_little_is_known_does_not() -> None:
    evidence = from_json('{"schema": 1, "host": "x", "answers": {}}')
    why = gate.of_check(evaluate(catalog.load(None), evidence, policy.load(), datetime.date(2026, 11, 29)))
    assert why.startswith("too little could be judged: 0 of ")


def test_a_canary_only_has_to_answer_everything() -> None:
    assert gate.of_baseline(PROFILE, {}, SHARE) == ""
    why = gate.of_baseline(with_rung(errors=1, error_examples={"status": "HTTP 500: no"}), {}, SHARE)
    assert "1 of " in why
    assert "HTTP 500: no" in why
    assert "no request was answered" in gate.of_baseline(with_rung(requests=0), {}, SHARE)


@pytest.mark.parametrize(("share", "passes"), [(1.2, True), (1.0, True), (0.91, True), (0.89, False), (0.1, False)])
def test_an_engine_may_be_a_little_slower_than_the_canary(share: float, *, passes: bool) -> None:
    ((concurrency, rate),) = gate.rates(PROFILE).items()
    why = gate.of_baseline(with_rung(output_tokens_per_s=rate * share), {concurrency: rate}, SHARE)
    assert (why == "") == passes
    if not passes:
        assert "where the canary has" in why
        assert "provision.least_share" in why


def test_a_measurement_that_is_to_be_doubted_says_so() -> None:
    slow = with_rung(output_tokens_per_s=1.0, valid=False, invalid_because="client-limited")
    ((concurrency, rate),) = gate.rates(PROFILE).items()
    assert gate.of_baseline(slow, {concurrency: rate}, SHARE).endswith("To be doubted: client-limited")


def test_a_rate_that_could_not_be_measured_is_no_pass() -> None:
    ((concurrency, rate),) = gate.rates(PROFILE).items()
    assert "no rate" in gate.of_baseline(with_rung(output_tokens_per_s=None), {concurrency: rate}, SHARE)
