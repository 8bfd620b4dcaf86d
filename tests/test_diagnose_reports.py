"""Diagnoses of what people reported in public: the lines that their machines printed, each with where it stands."""

import re

import pytest

from lpxdoctor.check import Severity
from lpxdoctor.report.json import document
from tests.diagnosing import KINDS, checks, judged

# "%% CHECK|CHECK address" begins each report; "nothing" is a host, or a log, with no fault that is to be named. Half of
# them were read while rules were made (first), half only measured (held-out), and the rest came after that (later); the
# same halves of a second gathering are the ones named again, and the third gathering was judged and measured before any
# rule was made for it.
REPORTS = [
    (expected.split("|"), address, text)
    for path in sorted(KINDS.glob("reported-*.txt"))
    for expected, address, text in re.findall(
        r"^%% (\S+) (\S+)\n((?:(?!%% ).*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
]


@pytest.mark.parametrize(
    ("expected", "text"), [report[::2] for report in REPORTS], ids=[address for _, address, _ in REPORTS]
)
def test_the_cause_of_a_report_comes_first_or_nothing_is_named(expected: list[str], text: str) -> None:
    found = document(judged(text)).findings
    failures = [finding.id for finding in found if finding.severity == Severity.FAIL.value]
    named = found[0].id if found else ""
    assert named in expected or ("nothing" in expected and not failures), (named, failures)


def test_each_report_has_an_address_and_names_checks_that_exist() -> None:
    assert len(REPORTS) > 500
    assert all(address.startswith("https://") for _, address, _ in REPORTS)
    assert {id_ for expected, _, _ in REPORTS for id_ in expected} - {check.id for check in checks()} <= {"nothing"}
