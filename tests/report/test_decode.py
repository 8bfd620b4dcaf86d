"""The table says what was measured, what cannot be compared and why, on any terminal."""

import io

import msgspec
import pytest
from rich.console import Console

from lpxdoctor.decode.profile import Profile
from lpxdoctor.decode.samples import Recording
from lpxdoctor.report.decode import render
from tests.decode.recordings import recording, sample, steady
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
    assert row(text, "1") == ["1", "50.0", "50.0", "10.0", "10.0", "71.4", "7.14", "1%", "±0.0%"]
    assert "tiny · vLLM 0.32.0 · 8 in, 10 out" in text
    assert "Every line can be compared: no errors, prefix-cache hits 0.0% at most" in text
    assert "GPUs not sampled" not in text.split("Every line")[0]


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
