"""The program as a process: closed and full streams, Ctrl-C, an encoding without signs, no state, no other program."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lpxdoctor import galaxy

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).with_name("lpxdoctor")
RECORDED = ROOT / "tests" / "hosts" / "h200-cdi" / "evidence.json"

PROFILE = ROOT / "docs" / "results" / "h200-profile.json"


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
