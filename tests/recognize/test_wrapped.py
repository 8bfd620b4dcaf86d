"""Lines that were broken are made whole, and lines that stand for themselves are not joined."""

import io
import textwrap

from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize import recognize
from lpxdoctor.recognize.condense import condense
from lpxdoctor.recognize.text import Pasted, pasted
from lpxdoctor.recognize.wrapped import whole

LONG = (
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a newer "
    "version, or use an earlier cuda container: unknown"
)


def given_lines(text: str) -> Pasted:
    return pasted(condense([text.encode()]))


def test_a_terminal_breaks_anywhere() -> None:
    broken = f"$ docker run\n{LONG[:60]}\n{LONG[60:120]}\n{LONG[120:]}\n"
    forms = list(whole(given_lines(broken)))
    assert forms[0].bare == ("$ docker run", LONG)
    assert forms[0].numbers == (1, 2)


def test_a_mail_breaks_between_words() -> None:
    forms = list(whole(given_lines(textwrap.fill(LONG, 72, break_on_hyphens=False) + "\nKind regards\n")))
    assert any(LONG in form.bare[0] for form in forms)


def test_a_line_broken_before_what_is_written_with_a_backslash_or_a_typographic_sign_is_whole_again() -> None:
    for mark in ('\\"', "\u201c"):
        line = (
            f"Error response from daemon: could not select device driver {mark}nvidia{mark} with capabilities: [[gpu]]"
        )
        broken = f"$ docker run\n{textwrap.fill(line, 60, break_on_hyphens=False)}\n"
        assert any('driver "nvidia" with' in form.text for form in whole(given_lines(broken))), mark


def test_lines_of_one_kind_are_no_broken_one() -> None:
    line = "[  885.242168] NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)"
    assert list(whole(given_lines(f"{line}\n{line}\n{line}\n"))) == []
    table = "+--------------------------------------------------------------+\n| NVIDIA-SMI 580.95.05 |\n"
    assert list(whole(given_lines(table))) == []


def test_what_is_found_in_a_broken_line_is_shown_whole_with_its_first_number() -> None:
    recognition = recognize(io.BytesIO(f"$ docker run\n{LONG[:60]}\n{LONG[60:120]}\n{LONG[120:]}\n".encode()))
    proof = next(proof for proof in recognition.proofs if proof.id == "engine.driver-too-old")
    assert proof.finding.seen[0].what == "line 2"


@given(st.lists(st.text()))
def test_any_lines_are_made_whole_without_losing_any(lines: list[str]) -> None:
    given_text = given_lines("\n".join(lines))
    for form in whole(given_text):
        assert "".join(form.bare).replace(" ", "") == "".join(given_text.bare).replace(" ", "")
        assert len(form.shown) == len(form.searched) == len(form.bare) == len(form.numbers)
