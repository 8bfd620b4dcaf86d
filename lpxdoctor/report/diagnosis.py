"""A judgement that rests on a text in; the diagnosis for a terminal out: one cause, its lines, how to be sure."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from lpxdoctor.check import Severity
from lpxdoctor.evaluate import Judgement, Result
from lpxdoctor.recognize import Recognition
from lpxdoctor.recognize.questions import Question
from lpxdoctor.report.printed import show
from lpxdoctor.report.text import in_full, signs_of
from lpxdoctor.report.typed import Typed

_WORDS = {Severity.FAIL: ("cause", "causes"), Severity.WARN: ("warning", "warnings"), Severity.INFO: ("note", "notes")}
_SHOWN = ("os", "kernel", "gpu", "driver", "docker", "vllm")
_NAMES = {"kernel": "kernel ", "driver": "driver ", "docker": "Docker ", "vllm": "vLLM "}


def render(
    judgement: Judgement,
    recognition: Recognition,
    questions: tuple[Question, ...],
    console: Console,
    *,
    verbose: bool = False,
) -> None:
    """Print the diagnosis.

    Args:
        judgement: of what was recognized.
        recognition: what was recognized, for what is shown of the host and of the text itself.
        questions: what to look at next; () where the text decides.
        console: where to.
        verbose: every finding in full, not only the first and the failures.
    """
    show(console, *_blocks(judgement, recognition, questions, signs_of(console), verbose=verbose))


def _blocks(
    judgement: Judgement,
    recognition: Recognition,
    questions: tuple[Question, ...],
    signs: dict[str, str],
    *,
    verbose: bool,
) -> Iterator[RenderableType]:
    about = [_NAMES.get(name, "") + recognition.about[name] for name in _SHOWN if recognition.about.get(name)]
    if about:
        yield Text(f" {signs['dot']} ".join(about), "bold")
        yield ""
    for number, result in enumerate(judgement.found):
        if verbose or number == 0 or result.failed:
            yield from in_full(judgement, result, signs)
        else:
            yield _brief(result, signs)
        yield ""
    if not judgement.found:
        yield from _nothing(recognition, signs)
    if questions:
        yield from _next(questions, decided=bool(judgement.found))
    yield from (Text(f"{signs['warn']} {note}", "yellow") for note in recognition.notes)
    yield Text(_counts(judgement, recognition, signs), "dim")


def _brief(result: Result, signs: dict[str, str]) -> RenderableType:
    return Text(
        f"{signs[result.severity.value]} {result.check.title}: {result.findings[0].message}  ({result.check.id})"
    )


def _nothing(recognition: Recognition, signs: dict[str, str]) -> Iterator[RenderableType]:
    said = "Nothing in it shows a fault" if recognition.anything else "Nothing in it is known to lpxdoctor"
    yield Text(
        f"{signs['unknown']} {said}. The host may be ill: a text shows only what somebody chose to show.", "bold"
    )
    yield ""


def _next(questions: tuple[Question, ...], *, decided: bool) -> Iterator[RenderableType]:
    yield Text("To decide, in this order:" if decided else "What to look at next, in this order:", "bold")
    for question in questions:
        yield Padding(Text(f"{question.layer}: {question.ask}"), (0, 0, 0, 2), expand=False)
        yield Padding(Typed(question.command), (0, 0, 0, 6), expand=False)
    yield ""


def _counts(judgement: Judgement, recognition: Recognition, signs: dict[str, str]) -> str:
    """Return the last line."""
    by_severity = Counter(result.severity for result in judgement.found)
    found = [f"{count} {_WORDS[severity][count != 1]}" for severity in Severity if (count := by_severity[severity])]
    text = recognition.pasted
    noun = "line" if text.total_lines == 1 else "lines"
    lines = f"{text.total_lines:,} {noun}" + (
        "" if text.whole else f", {len(text.numbers):,} of them looked at closely"
    )
    return f" {signs['dot']} ".join([", ".join(found) or "no fault shown", lines])
