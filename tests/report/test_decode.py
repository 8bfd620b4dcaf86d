"""The table says what was measured, what cannot be compared and why, on any terminal."""

import io
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from rich.console import Console

from lpxdoctor import policy
from lpxdoctor.decode.ceiling import Served, ceilings
from lpxdoctor.decode.profile import Ladder, Profile
from lpxdoctor.decode.samples import Recording
from lpxdoctor.decode.verdict import concluded
from lpxdoctor.report.decode import render
from lpxdoctor.report.decode_html import page
from tests.decode.recordings import recording, sample, steady
from tests.decode.simulated import H200, QWEN, Server, climbed
from tests.decode.test_profile import PROFILE
from tests.decode.test_validity import judged


def shown(profile: Profile, encoding: str = "utf-8") -> str:
    class Terminal(io.StringIO):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    console = Console(file=Terminal(), width=80, color_system=None)
    render(profile, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    text.encode(encoding)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    return text


def with_rungs(*rungs: Recording) -> Profile:
    return msgspec.structs.replace(PROFILE, rungs=tuple(judged(rung) for rung in rungs))


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_a_rung_is_a_line() -> None:
    text = shown(with_rungs(recording(steady(20))))
    assert row(text, "1") == ["1", "50.0", "50.0", "10.0", "10.0", "71.4", "-", "1%", "±0.0%"]
    assert "tiny · vLLM 0.32.0 · 8 in, 10 out" in text
    assert "Every line can be compared: no errors, prefix-cache hits 0.0% at most" in text
    assert "GPUs not sampled" not in text.split("Every line")[0]


def laddered(**changes: Any) -> Profile:
    """Return a ladder of a 7 B shape on an H200, whose steps grow by arithmetic."""
    slow = Server(per_sequence_ms=0.3, output=16)
    rungs = climbed(slow, (1, 2, 4, 8, 16, 32, 64), 1, ceiling=False)
    served = Served(model=QWEN, where="/srv/model", arguments=None, cache_dtype="auto")
    found = ceilings(rungs, served, ("NVIDIA H200",), (H200,))
    assert not isinstance(found, str)
    ladder = Ladder(asked=(1, 2, 4, 8, 16, 32, 64, 128), stopped="latency: too long")
    made = msgspec.structs.replace(
        PROFILE, rungs=found[0], ceiling=found[1], ladder=ladder, gpu=("NVIDIA H200",), **changes
    )
    return concluded(made, policy.load().ladder, {"tpot": 10.0, "ttft": 500.0})


def test_a_narrow_terminal_cuts_no_number() -> None:
    console = Console(file=io.StringIO(), width=60, color_system=None)
    render(laddered(), console)
    wide = shown(laddered())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for rung in laddered().rungs:
        assert row(text, str(rung.concurrency)) == row(wide, str(rung.concurrency))


def test_a_ladder_shows_its_knee_target_ceiling_and_curves() -> None:
    text = shown(laddered())
    flat = " ".join(text.split())
    knee = row(text, "16")
    assert knee[-2:] == ["←", "knee"]
    assert knee[6].endswith("%")
    assert "The ladder ended: latency: too long." in text
    assert "arithmetic at its peak explains 3.9" in flat
    assert "Knee: 16 at once, by compute (medium confidence)" in text
    assert "Target: 16 at once hold p95 of tpot within 10 ms and ttft within 500 ms, with 95% confidence" in flat
    assert "32 at once: p95 of tpot is" in text
    assert "Ceiling of one stream: 340 tokens/s, 14.1 GB a step at 4,814 GB/s" in text
    assert "3201 MHz x 2 x 6016 bit / 8, by NVML" in flat
    assert "assumed: the weights as they are stored" in flat
    assert "1 at once: 4.90 ms a step: at their peaks weights 2.94" in text
    assert "memory flat" in flat
    curves = [line for line in text.splitlines() if any("\u2801" <= sign <= "\u28ff" for sign in line)]
    assert len(curves) >= 6
    (under,) = (line for line in text.splitlines() if line.count("^") == 3)
    axis = text.splitlines()[text.splitlines().index(under) - 1]
    # 16 of 1 to 64 is at two thirds of the axis.
    first, last = axis.index("1"), axis.index("64") + 1
    assert under.index("^") == pytest.approx(first + (last - first) * 2 / 3, abs=1)


def test_a_target_that_no_line_holds_is_said_plainly() -> None:
    text = " ".join(shown(concluded(laddered(), policy.load().ladder, {"tpot": 1.0})).split())
    assert "No line holds the target: p95 of tpot within 1 ms 1 at once: p95 of tpot is 4." in text


def test_a_ceiling_that_is_not_known_has_its_reason() -> None:
    text = shown(msgspec.structs.replace(PROFILE, unknown={"ceiling": "no GPU was seen busy"}))
    assert "Ceiling not known: no GPU was seen busy." in text


def test_a_plain_terminal_gets_plain_curves() -> None:
    text = shown(laddered(), "ascii")
    assert sum("*" in line for line in text.splitlines()) >= 5
    assert row(text, "16")[-2:] == ["<-", "knee"]


class Page(HTMLParser):
    """Notes what a page consists of, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.points = 0
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data += data


def test_the_page_has_every_rung_three_times_and_loads_nothing() -> None:
    text = page(laddered(model="<b>odd & model"))
    seen = Page(text)
    assert not seen.open
    assert seen.seen["svg"] == 3
    assert seen.seen["circle"] == 7 * 5  # throughput, and two percentiles of two latencies
    assert seen.seen.get("script", 0) == 0
    assert "url(" not in text
    assert "<b>odd" not in text
    assert "<b>odd & model" in seen.data
    for said in ("knee: compute", "target 10 ms", "target 500 ms", "Ceiling of one stream"):
        assert said in seen.data
    assert "light-dark(" in text


def test_points_that_cannot_be_compared_are_hollow() -> None:
    bad = sample(0, [], failure="http-503: busy")
    assert page(with_rungs(recording([*steady(20), bad]))).count('class="open"') == 5
    assert Page(page(with_rungs(recording([bad])))).seen.get("svg", 0) == 0


def test_few_requests_are_marked() -> None:
    text = shown(with_rungs(recording(steady(5))))
    assert row(text, "1")[1:3] == ["50.0", "~50.0"]
    assert "~ from fewer than 20 requests" in text


def test_what_cannot_be_compared_says_why_with_an_example() -> None:
    bad = sample(0, [], failure="http-503: the queue is full")
    text = shown(with_rungs(recording([*steady(20), bad])))
    assert row(text, "1")[-1] == "✗"
    assert "✗ 1 at once: 1 of 21 requests failed (http-503 1)" in text
    assert "1 x http-503: the queue is full" in text
    assert "can be compared" not in text


def test_nothing_answered_is_shown_as_nothing() -> None:
    text = shown(with_rungs(recording([sample(0, [], failure="cut: x")])))
    assert row(text, "1")[1:8] == ["-"] * 7


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1"])
def test_a_plain_terminal_gets_plain_signs(encoding: str) -> None:
    bad = sample(0, [], failure="http-500: 显存不足 ±")
    assert "X 1 at once" in shown(with_rungs(recording([*steady(20), bad])), encoding)


def test_an_interrupted_run_is_said() -> None:
    text = shown(msgspec.structs.replace(with_rungs(recording(steady(20))), interrupted=True))
    assert "Interrupted" in text


def test_gpus_are_named_and_counted() -> None:
    text = shown(msgspec.structs.replace(PROFILE, gpu=("NVIDIA H200", "NVIDIA H200"), precision="bfloat16"))
    assert "2 x NVIDIA H200" in text
    assert "tiny bfloat16" in text
    assert "no GPU slowed down" in " ".join(text.split())
