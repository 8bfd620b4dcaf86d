"""A text as evidence and proofs: what it shows is judged, what it does not show is not, and any bytes are taken."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpxdoctor import catalog, policy
from lpxdoctor.cli import diagnose
from lpxdoctor.evaluate import Judgement, State
from lpxdoctor.facts.driver import VERSION
from lpxdoctor.facts.host import DMESG
from lpxdoctor.recognize import Recognition, recognize
from lpxdoctor.recognize.answers import JUDGED
from lpxdoctor.recognize.questions import questions
from lpxdoctor.report.json import document
from tests.recognize.test_nvidia_smi import QUERY, TABLE

CHECKS = catalog.load(None)


def recognized(text: str | bytes) -> Recognition:
    return recognize(io.BytesIO(text.encode() if isinstance(text, str) else text))


def judged(text: str | bytes) -> Judgement:
    return diagnose.judge(recognized(text), CHECKS, policy.load())


def test_machine_output_becomes_the_answers_to_our_own_probes() -> None:
    text = (
        "Nov 29 03:00:00 n1 kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=p, MMU\n"
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n" + TABLE
    )
    answers = recognized(text).evidence.answers
    assert "Xid" in answers[DMESG.key].value["stdout"]
    assert answers[VERSION.key].value.startswith("NVRM version")


def test_a_table_with_an_error_in_it_is_judged_by_the_check() -> None:
    found = {finding.id: finding for finding in document(judged(TABLE)).findings}
    assert found["gpu.ecc-uncorrectable"].subject == "GPU 3"
    assert found["gpu.ecc-uncorrectable"].confirm == ("sudo lpxdoctor check gpu.ecc-uncorrectable",)


def test_a_query_is_judged_by_all_that_it_shows() -> None:
    ids = [finding.id for finding in document(judged(QUERY)).findings]
    assert {"gpu.recovery-needed", "gpu.ecc-uncorrectable", "gpu.hardware-slowdown", "gpu.row-remap-pending"} <= set(
        ids
    )


def test_the_checks_that_judge_excerpts_exist() -> None:
    assert {check.id for check in CHECKS} >= JUDGED


@pytest.mark.parametrize("text", [TABLE, QUERY, "", "Xid 31", "ii  nvidia-driver-550  550.54.15-1 amd64"])
def test_an_excerpt_never_passes_a_check(text: str) -> None:
    assert judged(text).of(State.PASS, State.CRASHED) == ()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Xid 62 and 61 on a V100", {"gpu.xid-hardware"}),
        ("XID errors: 69, 109 in our logs", {"gpu.xid-driver", "gpu.xid-program"}),
        ("Xid 8", {"gpu.xid-driver"}),
        ("no Xid 62", set[str]()),
        ("Xid 9999", set[str]()),
    ],
)
def test_xids_in_prose_are_explained(text: str, ids: set[str]) -> None:
    found = {proof.id for proof in recognized(text).proofs}
    assert found <= {"gpu.xid-hardware", "gpu.xid-driver", "gpu.xid-program", "gpu.xid-minor"}
    assert found >= ids if ids else not found


def test_what_is_shown_already_is_not_asked_for() -> None:
    assert [question.layer for question in questions({}, shown=False)] == ["symptom", "input", "environment"]
    shown = questions({"driver": "580", "gpu": "L4", "docker": "28", "model": "m", "vllm": "0.9"}, shown=True)
    assert [question.layer for question in shown] == ["input", "environment"]


@settings(max_examples=40)
@given(st.lists(st.one_of(st.text(), st.sampled_from([*TABLE.splitlines(), *QUERY.splitlines()]))))
def test_any_lines_are_judged_without_a_crash(lines: list[str]) -> None:
    judgement = judged("\n".join(lines))
    assert judgement.of(State.CRASHED, State.PASS) == ()
    document(judgement)


@settings(max_examples=40)
@given(st.binary())
def test_any_bytes_are_judged_without_a_crash(data: bytes) -> None:
    assert judged(b"#" + data).of(State.CRASHED, State.PASS) == ()
