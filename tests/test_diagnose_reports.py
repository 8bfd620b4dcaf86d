"""Diagnoses of what people reported in public: the lines that their machines printed, each with where it stands."""

import re
import textwrap

import pytest

from lpxdoctor.check import Severity
from lpxdoctor.report.json import document
from tests.diagnosing import KINDS, checks, judged

# "%% CHECK|CHECK address" begins each report; "nothing" is a host, or a log, with no fault that is to be named. Half of
# them were read while rules were made (first), half only measured (held-out), and the rest came after that (later); the
# same halves of a second gathering are the ones named again, and the third and the fourth gathering were judged and
# measured before any rule was made for them.
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


# What programs say, in their words as far as they are known, and cut short: "%% CHECK|CHECK" begins each.
SAID = [
    (expected.split("|"), text)
    for expected, text in re.findall(
        r"^%% (\S+)\n((?:(?!%% ).*\n)*)", (KINDS / "said-by-programs.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
]


def first(text: str) -> str:
    found = document(judged(text)).findings
    failures = [finding.id for finding in found if finding.severity == Severity.FAIL.value]
    return found[0].id if failures or found else "nothing"


@pytest.mark.parametrize(("expected", "text"), SAID, ids=[f"{said[0][0]}-{n}" for n, said in enumerate(SAID)])
def test_what_a_program_says_is_known(expected: list[str], text: str) -> None:
    assert first(text) in expected


@pytest.mark.parametrize(("expected", "text"), SAID[::4], ids=range(len(SAID[::4])))
def test_spaces_that_do_not_break_are_spaces(expected: list[str], text: str) -> None:
    assert first(text.replace(" ", "\xa0")) in expected


def test_a_line_that_goes_on_indented_is_one_line() -> None:
    said = (
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a "
        "newer version, or use an earlier cuda container: unknown"
    )
    text = "\n".join(textwrap.wrap(said, 60, break_on_hyphens=False, subsequent_indent=" " * 17))
    assert first(text) == "engine.driver-too-old"


def test_an_option_whose_dashes_a_chat_made_one_is_an_option() -> None:
    assert first("vllm serve /models/qwen \u2014enforce-eager, and decoding is slow") == "engine.eager-mode"


def test_a_log_in_json_may_name_its_level_and_time_first() -> None:
    line = '{"level": "error", "ts": "2026-05-03T12:00:01Z", "msg": "error: invalid argument: --n-gpu-layer"}'
    assert first(line) == "engine.arguments-refused"
