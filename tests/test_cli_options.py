"""What options mean, wherever they stand: forms, evidence from standard input, files to write, colours."""

import re
import sys
from pathlib import Path

import click
import pytest

from lpxdoctor.cli import run
from tests.command_tree import LEAVES, option
from tests.test_json_outputs import LINES, ROOT
from tests.test_json_outputs import places as places  # noqa: PLC0414 - a fixture

RECORDED = ROOT / "tests" / "hosts" / "h200-cdi" / "evidence.json"
# Command -> what it needs besides evidence.
EVIDENCE = {"check": [], "fix": [], "plan": ["{model}"]}
COLOURS = re.compile(r"\x1b\[[0-9;]*(?:[349][0-7]|[34]8;)[0-9;]*m")
TEXTS = [line for lines in LINES.values() for line, _ in lines]


def with_option(name: str) -> dict[tuple[str, ...], click.Parameter]:
    return {words: one for words, command in LEAVES.items() for one in command.params if option(one) == name}


def test_every_form_is_text_first() -> None:
    for words, form in with_option("--format").items():
        assert isinstance(form.type, click.Choice), words
        assert tuple(form.type.choices) in {("text", "json"), ("text", "json", "html")}, words
        assert form.default == "text", words
    assert set(LEAVES) - set(with_option("--format")) == {("collect",)}  # which writes JSON alone


def test_evidence_may_come_from_standard_input(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taking = {words for words, one in with_option("--from").items() if (one.metavar or "").startswith("FILE")}
    assert taking == {(name,) for name in EVIDENCE}
    for name, more in EVIDENCE.items():
        argv = [name, *(word.format(**places) for word in more), "--format", "json", "--from"]
        status = run([*argv, str(RECORDED)])
        named = capsys.readouterr().out
        with RECORDED.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            assert run([*argv, "-"]) == status
        assert capsys.readouterr().out == named
        assert named


@pytest.mark.parametrize("words", with_option("--output"), ids=" ".join)
def test_a_file_named_with_a_dash_is_not_made(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {
        "baseline": ["http://127.0.0.1:1"],
        "bundle create": ["--for", "debian12"],
        "tune": ["--engine", "false {port} {arguments}"],
    }
    monkeypatch.chdir(tmp_path)
    assert run([*words, *needed.get(" ".join(words), []), "-o", "-"]) == 64
    assert capsys.readouterr().err.startswith("lpxdoctor: -")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", TEXTS)
def test_no_colour_where_none_is_wanted(
    line: str, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    argv = [word.format(**places) for word in line.split()]
    run(argv)
    assert not COLOURS.search(capsys.readouterr().out)
    if line.startswith("check") and "{broken}" in line:
        monkeypatch.delenv("NO_COLOR")
        run(argv)
        assert COLOURS.search(capsys.readouterr().out)


def test_a_record_is_of_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fix", "--from", str(RECORDED), "-i", "a"]) == 64
    assert "--from and -i exclude each other" in capsys.readouterr().err
