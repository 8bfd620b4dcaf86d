"""Odd words and files for every option of every command, which are taken from the command line itself; a defect."""

import functools
import subprocess
import tempfile
from pathlib import Path

import click
import pytest

from lpxdoctor import catalog, fleet, playbook
from lpxdoctor.cli import _edges, _host, run
from lpxdoctor.decode import target
from lpxdoctor.errors import SetupError
from tests.command_tree import LEAVES, option, takes_text

NOBODY = "nothing-of-that-name"

WORDS = ("  ", "-1", "nan", "a\nb", "ünï-名 x", "x" * 300, "/nonexistent/file", "/")
FILES = {
    "empty": b"",
    "binary": bytes(range(255, 0, -1)),
    "broken.json": b'{"a": [1,',
    "broken.yml": b"a: [1,\n b: {",
    "newer.json": b'{"schema": 99, "host": "h", "answers": {}}',
    "list.json": b"[1, 2]",
}


def needed(command: click.Command, *, but: click.Parameter | None) -> list[str]:
    """Return words that stand for what a command cannot do without."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required and parameter is not but:
            words += [NOBODY] if isinstance(parameter, click.Argument) else [option(parameter), NOBODY]
    return words


PLACES = [
    (words, parameter) for words, command in LEAVES.items() for parameter in command.params if takes_text(parameter)
]


def named(places: list[tuple[tuple[str, ...], click.Parameter]]) -> list[str]:
    return [f"{' '.join(words)} {option(parameter)}" for words, parameter in places]


@pytest.fixture
def nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have what would act or ask refuse instead, keep state in a new directory, and return that to work in."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise SetupError("This would have been done.")

    for module, name in ((_host, "collect"), (fleet, "answers"), (playbook, "run"), (target, "reached")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(subprocess, "run", refuse)  # ansible-inventory takes half a second
    monkeypatch.setattr(catalog, "load", functools.cache(catalog.load))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(("words", "parameter"), PLACES, ids=named(PLACES))
def test_odd_words_and_files_are_refused_with_a_reason(
    words: tuple[str, ...], parameter: click.Parameter, nothing_happens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in FILES.items():
        (nothing_happens / name).write_bytes(content)
    rest = needed(LEAVES[words], but=parameter)
    for value in (*WORDS, *FILES):
        typed = (
            ["--", value, *rest] if isinstance(parameter, click.Argument) else [f"{option(parameter)}={value}", *rest]
        )
        status = run([*words, *typed])
        said = capsys.readouterr()
        assert status in {0, 2, 3, 64}, (typed, said.err)
        assert "Traceback" not in said.err + said.out, typed
        assert "Errno" not in said.err, typed
        if status == 64:
            assert said.err.startswith(("lpxdoctor: ", "Usage: ")), typed
            assert not said.out, typed


@pytest.mark.parametrize(("words", "parameter"), PLACES, ids=named(PLACES))
def test_an_empty_word_is_never_taken_for_none(
    words: tuple[str, ...], parameter: click.Parameter, nothing_happens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = needed(LEAVES[words], but=parameter)
    ways = (
        (["--", ""],) if isinstance(parameter, click.Argument) else ([option(parameter), ""], [f"{option(parameter)}="])
    )
    for way in ways:
        assert run([*words, *way, *rest]) == 64
        assert "is empty" in capsys.readouterr().err


def test_words_for_an_engine_may_end_in_an_equals_sign(nothing_happens: Path) -> None:
    _edges.refuse_empty(["deploy", "--arg", "--chat-template=", "--env", "NAME=", "--env=NAME="])


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_unknown_option_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--no-such-option"]) == 64
    assert "No such option" in capsys.readouterr().err


def test_a_result_that_cannot_be_written_is_said_before_the_host_is_asked(
    nothing_happens: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [(words, place) for words, place in PLACES if "--output" in place.opts]
    assert len(outputs) >= 5
    for words, _ in outputs:
        assert run([*words, *needed(LEAVES[words], but=None), "-o", "/nonexistent/file"]) == 64, words
        assert "This would have been done" not in capsys.readouterr().err, words


def test_a_defect_has_its_own_status_and_its_trace_is_kept(
    nothing_happens: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object) -> None:
        raise KeyError("no such key")

    monkeypatch.setattr(catalog, "load", broken)
    assert run(["checks"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("lpxdoctor: this is a defect of lpxdoctor: KeyError: 'no such key'\n")
    assert "Traceback" not in said
    kept = Path(said.split()[-1])
    assert "in broken" in kept.read_text(encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    monkeypatch.setattr(tempfile, "tempdir", str(nothing_happens))
    assert run(["checks"]) == 70
    kept = Path(capsys.readouterr().err.split()[-1])
    assert "in broken" in kept.read_text(encoding="utf-8")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    assert run(["checks"]) == 70
    assert "in broken" in capsys.readouterr().err
