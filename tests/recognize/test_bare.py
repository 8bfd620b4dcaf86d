"""What stands before and around lines is taken away, and nothing of what a program itself said."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpxdoctor.recognize.bare import bare

SAID = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1568)"


@pytest.mark.parametrize(
    "line",
    [
        f"Dec  2 11:49:53 worker4 kernel: [  885.242168] {SAID}",
        f"12月  2 11:49:53 worker4 kernel: [  885.242168] {SAID}",
        f"2026-12-02T11:49:53.123+08:00 worker4 kernel: {SAID}",
        f"2026-12-02T11:49:53.123456789Z stderr F {SAID}",
        f"[Wed Dec  2 11:49:53 2026] {SAID}",
        f"/var/log/kern.log:17:Dec  2 11:49:53 worker4 kernel: {SAID}",
        f"kernel: {SAID}",
        f"(EngineCore_DP0 pid=68) (RayWorkerWrapper pid=7) ERROR 02-06 16:34:06 [core.py:936] {SAID}",
        f"[rank0]: {SAID}",
        f"[pod/vllm-7d9f/vllm] {SAID}",
        '{"log":"' + SAID,  # the end of the line went with its escape
        f"<pre><code>{SAID}</code></pre>",
        f"      {SAID}",
        SAID,
    ],
)
def test_one_line_is_what_the_program_said(line: str) -> None:
    assert bare([line]) == (SAID,)


def test_the_program_keeps_its_name_where_it_is_none_of_the_kernels() -> None:
    assert bare(["Nov 15 14:15:47 n7 nv-fabricmanager[4177]: failed"]) == ("nv-fabricmanager[4177]: failed",)


def test_numbers_are_taken_where_they_count_the_lines() -> None:
    assert bare(["  1\ta", "  2\tb", "  3\tc"]) == ("a", "b", "c")
    assert bare(["1: a", "2: b", "3: c"]) == ("a", "b", "c")
    table = ["0 45 30", "0 46 31", "0 47 31"]
    assert bare(table) == tuple(table)


def test_what_a_program_begins_all_its_lines_with_stays() -> None:
    lines = [f"modprobe: ERROR: {what}" for what in ("one", "two", "three")]
    assert bare(lines) == tuple(lines)
    assert bare([f"vllm-7d9f vllm {what}" for what in ("one", "two", "three")]) == ("one", "two", "three")


def test_escapes_of_the_web_and_of_json_are_read() -> None:
    assert bare(["cuda&gt;=12.8 &quot;x&quot; &#39;y&#39;"]) == ("cuda>=12.8 \"x\" 'y'",)
    assert bare([json.dumps({"log": "显存不足"})[:-2]]) == ("显存不足",)
    assert bare(['","stream":"stderr","time":"2026-11-29T03:12:44Z"}']) == ("",)


# As people's lines come, and the ways in which the end of one may be written inside.
PIECES = st.sampled_from(["\\u000a", "&#10;", "&#x0a;", "&#13;", "&quot;", "<br>", "1: ", "NVRM: Xid "])


@given(st.lists(st.text() | st.lists(PIECES | st.text()).map("".join)))
def test_any_lines_stay_as_many_and_each_is_one(lines: list[str]) -> None:
    given_lines = [line.replace("\n", "") for line in lines]
    found = bare(given_lines)
    assert len(found) == len(given_lines)
    assert "\n" not in "".join(found)
