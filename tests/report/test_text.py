"""The text report: one cause first, quiet when healthy, counts that add up, any terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import Judgement, State, evaluate
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.report.text import flowing, render

HOSTS = sorted(path.parent for path in Path("tests/hosts").glob("*/evidence.json"))


def judged(directory: Path) -> Judgement:
    evidence = from_json((directory / "evidence.json").read_text(encoding="utf-8"))
    return evaluate(catalog.load(None), evidence, policy.load())


def printed(judgement: Judgement, *, encoding: str = "utf-8", width: int = 80, verbose: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    render(judgement, Console(file=file, width=width), seconds=1.0, verbose=verbose)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("directory", HOSTS, ids=lambda path: path.name)
def test_the_report_of_a_recorded_host_is_the_one_that_was_read(
    directory: Path, request: pytest.FixtureRequest
) -> None:
    golden, text = directory / "report.txt", printed(judged(directory))
    if request.config.getoption("--update"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "pytest --update, and read the difference"


@pytest.mark.parametrize("directory", HOSTS, ids=lambda path: path.name)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(directory: Path, width: int) -> None:
    assert max(map(len, printed(judged(directory), width=width).splitlines())) <= width


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "utf-8"])
@pytest.mark.parametrize("directory", HOSTS, ids=lambda path: path.name)
def test_any_terminal_can_show_it(directory: Path, encoding: str) -> None:
    assert printed(judged(directory), encoding=encoding)


@pytest.mark.parametrize("directory", HOSTS, ids=lambda path: path.name)
def test_the_numbers_of_the_last_line_add_up(directory: Path) -> None:
    judgement = judged(directory)
    last = printed(judgement, width=300).splitlines()[-1]
    numbers = [int(n) for n in re.findall(r"(\d+) (?!of)", last.partition(" judged")[0].rpartition("·")[0])]
    assert sum(numbers) == len(judgement.results)


def test_everything_is_shown_when_asked_for() -> None:
    judgement = evaluate(catalog.load(None), Evidence("gpu-1"), policy.load())
    text = printed(judgement, verbose=True, width=200)
    assert all(result.check.id in text for result in judgement.results)
    assert "is not called healthy" in text
    assert len(judgement.of(State.UNKNOWN)) > 100


def test_explanations_flow_and_commands_stay_on_lines_of_their_own() -> None:
    text = "one\ntwo\nthree:\n    sudo first\n    sudo second\nthen four\nfive"
    assert flowing(text) == "one two three:\n    sudo first\n    sudo second\nthen four five"


@pytest.mark.parametrize("directory", HOSTS, ids=lambda path: path.name)
def test_no_line_ends_with_spaces(directory: Path) -> None:
    lines = printed(judged(directory), verbose=True).splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
