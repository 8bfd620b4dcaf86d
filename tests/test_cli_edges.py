"""Every command at its edges: odd words and files for each of its options, closed and full streams, a defect.

The commands and their options are taken from the command line itself, so that a new one is covered without a line here.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lpxdoctor import catalog, fleet, galaxy, playbook
from lpxdoctor.cli import _edges, _host, group, run
from lpxdoctor.decode import target
from lpxdoctor.errors import SetupError

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).with_name("lpxdoctor")
RECORDED = ROOT / "tests" / "hosts" / "h200-cdi" / "evidence.json"
PROFILE = ROOT / "docs" / "results" / "h200-profile.json"
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


def leaves(
    command: click.Command = group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that can be run, with the words that call it."""
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from leaves(found, (*words, name))


def option(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len)


def takes_text(parameter: click.Parameter) -> bool:
    """Tell whether any text may be typed; click itself refuses what is no number and none of the choices."""
    plain = isinstance(parameter.type, (click.types.StringParamType, click.Path))
    return plain and not (isinstance(parameter, click.Option) and parameter.is_flag)


def needed(command: click.Command, *, but: click.Parameter | None) -> list[str]:
    """Return words that stand for what a command cannot do without."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required and parameter is not but:
            words += [NOBODY] if isinstance(parameter, click.Argument) else [option(parameter), NOBODY]
    return words


LEAVES = dict(leaves())
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


def test_what_changes_nothing_needs_no_state(tmp_path: Path) -> None:
    for name, version in galaxy.requirements().items():
        manifest = tmp_path / "ansible_collections" / name.replace(".", "/", 1) / "MANIFEST.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"collection_info": {"version": str(version)}}), encoding="utf-8")
    alone = {**os.environ, "XDG_STATE_HOME": "/dev/null/state", "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    for line, status in (
        ("fix --plan host.disk-full", {0, 2}),
        (f"fix --from {RECORDED}", {0}),
        ("check host.disk-full", {0, 2}),
        ("provision --plan -i root@127.0.0.1:1", {0}),
        (f"baseline --from {PROFILE}", {0}),
        ("deploy --plan --model /x -i root@127.0.0.1:1", {2}),  # nothing listens there
    ):
        done = subprocess.run((PROGRAM, *line.split()), capture_output=True, text=True, check=False, env=alone)
        assert done.returncode in status, (line, done.stderr)
        assert "XDG_STATE_HOME" not in done.stderr, line


# What prints: by print, by rich, by click and as a document.
PRINTING = (
    "--version",
    "--help",
    "checks",
    "explain driver.library-mismatch",
    f"check --from {RECORDED}",
    f"check --from {RECORDED} --format json",
    f"baseline --from {PROFILE} --format html",
)


def ran(line: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # buffered, as usual
    return subprocess.run((PROGRAM, *line.split()), stderr=subprocess.PIPE, check=False, env=kept, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("line", PRINTING)
def test_a_full_disk_is_told(line: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = ran(line, stdout=full)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        b"lpxdoctor: the output cannot be written: No space left on device.",
        b"Put that right and type the same again.",
    ]


@pytest.mark.parametrize("line", PRINTING)
def test_a_reader_that_goes_away_is_no_verdict(line: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = ran(line, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_ctrl_c_while_the_program_starts_is_no_traceback(tmp_path: Path) -> None:
    # Ctrl-C raises this wherever the program is; here in a module that the command line imports.
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    slow = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run((PROGRAM, "checks"), capture_output=True, check=False, env=slow)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"Interrupted.\n")


def test_a_shell_completes_commands_and_options() -> None:
    for words, place, wanted in (("lpxdoctor ch", "1", "plain,checks"), ("lpxdoctor fix --res", "2", "plain,--resume")):
        asked = {"_LPXDOCTOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
        done = subprocess.run((PROGRAM,), capture_output=True, text=True, check=False, env={**os.environ, **asked})
        assert wanted in done.stdout.splitlines()


def test_closed_streams_hold_no_command_up() -> None:
    for line in (*PRINTING, f"check --from - < {RECORDED}"):
        done = subprocess.run(f"{PROGRAM} {line} >&-", shell=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr.splitlines()[1:]) == (0, []), line
    done = subprocess.run(f"{PROGRAM} check --from - <&- 2>&1", shell=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout.split(b". ")[0]) == (64, b"lpxdoctor: standard input is empty")


def test_a_terminal_without_letters_for_it_gets_text_and_json_stays_utf_8() -> None:
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for line in (f"check --from {RECORDED}", "checks", "explain driver.library-mismatch", f"baseline --from {PROFILE}"):
        done = subprocess.run((PROGRAM, *line.split()), capture_output=True, check=False, env=plain)
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii(), line
    for line in (
        f"check --from {RECORDED} --format json",
        "checks --format json",
        f"diagnose {RECORDED} --format json",
    ):
        done = subprocess.run((PROGRAM, *line.split()), capture_output=True, check=False, env=plain)
        json.loads(done.stdout.decode("utf-8"))


def test_recorded_evidence_needs_no_other_program(tmp_path: Path) -> None:
    alone = {"PATH": str(tmp_path), "HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "40"}
    for line in (f"check --from {RECORDED}", f"fix --from {RECORDED}", f"diagnose {RECORDED}", "checks", "knowledge"):
        done = subprocess.run((PROGRAM, *line.split()), capture_output=True, text=True, check=False, env=alone, cwd="/")
        assert done.returncode == 0, (line, done.stderr)
    assert shutil.which("docker", path=str(tmp_path)) is None


# Options by which commands mean things of their own; all others have the same words wherever they stand.
OWN = {
    *("--concurrency", "--from", "--output", "--model", "--name", "--plan", "--image", "--resume", "--timeout"),
    *("--requests", "--variant", "--local", "--api-key-file"),
}


def options() -> Iterator[tuple[str, tuple[str, ...], click.Option]]:
    for words, command in LEAVES.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield option(parameter), words, parameter


def test_an_option_has_the_same_words_in_every_command() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for name, words, found in options():
        told = (found.opts, found.metavar, (found.help or "").split(".")[0].split(",")[0], found.default)
        if name not in OWN:
            assert seen.setdefault(name, told) == told, f"{name} of {' '.join(words)}"
    assert {"--inventory", "--vars", "--policy", "--format"} <= set(seen)


def test_an_option_says_what_it_takes_and_what_it_does() -> None:
    for name, words, found in options():
        where = f"{name} of {' '.join(words)}"
        if takes_text(found):
            assert found.metavar, where
        assert "RANGE" not in found.make_metavar(click.Context(LEAVES[words])), where
        assert found.help or name == "--format", where
        assert "repeatable" not in (found.help or ""), where
        assert not found.multiple or "may be repeated" in (found.help or "") or name in {"--env", "--from"}, where


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_command_tells_its_exit_statuses(words: tuple[str, ...]) -> None:
    assert words in {("checks",), ("knowledge",)} or "Exit status" in (LEAVES[words].help or "")
