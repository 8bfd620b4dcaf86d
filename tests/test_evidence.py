"""Evidence: accessors tell what is absent from what could not be read, and JSON keeps everything."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpxdoctor.evidence import (
    Answer,
    Command,
    Evidence,
    File,
    Glob,
    Http,
    Listing,
    Probe,
    Program,
    Unreadable,
    from_json,
    to_json,
)

COMMAND, FILE = Command(("uname", "-r")), File("/etc/os-release")


def evidence(**answers: Answer) -> Evidence:
    return Evidence("gpu-1", {key.replace("__", ":"): answer for key, answer in answers.items()})


def test_a_question_that_was_not_asked_is_unreadable_and_not_absent() -> None:
    empty = Evidence("gpu-1")
    assert not empty.absent(FILE)
    for read in (empty.text, empty.text_or_none, empty.value):
        with pytest.raises(Unreadable, match="file:/etc/os-release was not asked"):
            read(FILE)


def test_what_does_not_exist_is_none_and_what_is_denied_raises() -> None:
    absent = Evidence("h", {FILE.key: Answer(failure="absent", reason="/etc/os-release: No such file")})
    assert absent.text_or_none(FILE) is None
    assert absent.absent(FILE)
    denied = Evidence("h", {FILE.key: Answer(failure="denied", reason="/etc/os-release: Permission denied")})
    with pytest.raises(Unreadable, match="Permission denied"):
        denied.text_or_none(FILE)


def test_a_command_that_failed_is_unreadable_with_its_last_words() -> None:
    failed = Evidence("h", {COMMAND.key: Answer({"exit": 3, "stdout": "", "stderr": "warning\nno such thing\n"})})
    with pytest.raises(Unreadable, match=r"exit 3: no such thing"):
        failed.text(COMMAND)
    assert failed.value(COMMAND)["exit"] == 3


def test_nothing_matched_is_empty() -> None:
    probe = Glob("/sys/x/*")
    assert Evidence("h", {probe.key: Answer({})}).found(probe) == {}
    with pytest.raises(Unreadable):
        Evidence("h", {probe.key: Answer(failure="timeout", reason="no answer")}).found(probe)


def test_every_kind_has_a_key_of_its_own() -> None:
    probes: list[Probe] = [Command(("x",)), File("x"), Glob("x"), Listing("x"), Http("x", "/"), Program("x")]
    assert len({probe.key for probe in probes}) == len(probes)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=25)
@given(
    st.dictionaries(st.text(), st.builds(Answer, json_values, st.text(), st.text(), st.just(0.5))),
    st.none() | st.just(0),
)
def test_json_both_ways_loses_nothing(answers: dict[str, Answer], uid: int | None) -> None:
    before = Evidence("gpu-1", answers, "2026-01-01T00:00:00Z", "lpxdoctor 1", uid)
    assert from_json(to_json(before)) == before


@given(st.text())
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        from_json(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    "data",
    [[], {}, {"schema": 1}, {"schema": 2, "answers": {}}, {"schema": 1, "answers": {"k": {"odd": 1}}}, {"answers": []}],
)
def test_what_is_no_evidence_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"evidence|keys"):
        from_json(json.dumps(data))
