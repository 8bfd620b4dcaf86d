"""A program in a fork cannot tell that it has no interpreter of its own, and takes nothing of the collector along."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.collect import collect
from lpxdoctor.evidence import Answer, Command, Probe, Program
from tests.tune.test_command import ended

ROOT = Path(__file__).resolve().parent.parent

# What a program sees of its process. The numbers of its open files include the one that lists them.
LOOK = """
import json, os, signal, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "handlers": [signal.getsignal(number) != signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGUSR1)],
    "stdin": sys.stdin.read(), "session": os.getsid(0) == os.getpid(),
    "locale": os.environ["LC_ALL"], "sbin": "/usr/sbin" in os.environ["PATH"].split(":"),
}))
"""

# A collector that did before it collected what a program must not see or do again.
COLLECTOR = """
import atexit, json, pathlib, signal, sys
from lpxdoctor.collect import collect
from lpxdoctor.evidence import Program
atexit.register(lambda: sys.stderr.write("the collector's end\\n"))
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, lambda *_: None)
held = open(__import__("os").devnull)
sys.stdout.write("not yet written ")
look = Program("look", ("a", "b"))
answer = collect([look], {"look": pathlib.Path(sys.argv[1])}).answers[look.key]
print(json.dumps([answer.value, answer.reason]))
"""


def run(text: str, directory: Path, *argv: str, timeout_s: float = 10.0, others: tuple[Probe, ...] = ()) -> Answer:
    """Answer a program of some text."""
    (directory / "program.py").write_text(text, encoding="utf-8")
    probe = Program("program", argv, timeout_s)
    return collect([probe, *others], {"program": directory / "program.py"}).answers[probe.key]


def looked(directory: Path, *shell: str, **settings: str) -> tuple[dict[str, Any], str, str]:
    """Return what LOOK saw in a collector of its own, with that one's standard output before it, and its errors."""
    (directory / "look.py").write_text(LOOK, encoding="utf-8")
    argv = [*shell, sys.executable, "-c", COLLECTOR, str(directory / "look.py")]
    environment = {**os.environ, **settings}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, env=environment, input="typed")
    before, _, answer = done.stdout.partition("[")
    seen, reason = json.loads("[" + answer)
    assert seen, reason
    return seen, before, done.stderr


def test_a_program_sees_a_process_of_its_own(tmp_path: Path) -> None:
    seen, _, _ = looked(tmp_path)
    assert seen["argv"] == [str(tmp_path / "look.py"), "a", "b"]
    assert (seen["name"], seen["file"], seen["main"]) == ("__main__", str(tmp_path / "look.py"), True)
    assert seen["files"] == [0, 1, 2, 3]
    assert seen["handlers"] == [False, False]
    assert (seen["stdin"], seen["session"]) == ("", True)
    assert (seen["locale"], seen["sbin"]) == ("C.UTF-8", True)


def test_a_program_takes_nothing_of_the_collector_along(tmp_path: Path) -> None:
    _, before, errors = looked(tmp_path)
    assert before == "not yet written "  # once
    assert errors.count("the collector's end") == 1


def test_a_program_imports_from_its_directory_and_from_us_and_not_what_the_caller_added(tmp_path: Path) -> None:
    added = tmp_path / "added"
    added.mkdir()
    seen, _, _ = looked(tmp_path, PYTHONPATH=f"{added}{os.pathsep}{ROOT}")
    assert seen["path"][:2] == [str(tmp_path), str(ROOT)]
    assert str(added) not in seen["path"]
    assert "" not in seen["path"]
    assert any(entry.endswith("site-packages") for entry in seen["path"])


def test_a_collector_without_standard_streams_still_collects(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK, encoding="utf-8")
    script = COLLECTOR.replace('sys.stdout.write("not yet written ")', "") + (
        "\npathlib.Path(sys.argv[2]).write_text(json.dumps(answer.value))\n"
    )
    argv = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script.replace("print(", "repr("),
            str(tmp_path / "look.py"), str(tmp_path / "seen")]  # fmt: skip
    subprocess.run(argv, check=False, cwd=ROOT)
    assert json.loads((tmp_path / "seen").read_text(encoding="utf-8"))["argv"][1:] == ["a", "b"]


def test_the_neighbour_and_the_package_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'next door'", encoding="utf-8")
    answer = run("import json, neighbour, lpxdoctor.programs\nprint(json.dumps(neighbour.WORD))", tmp_path)
    assert answer.value == "next door"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ValueError('seven')", "exit 1, no JSON printed: ValueError: seven"),
        ("import sys; sys.exit('no library')", "exit 1, no JSON printed: no library"),
        ("import sys; sys.exit(7)", "exit 7, no JSON printed"),
        ("import os; os.abort()", "signal SIGABRT, no JSON printed"),
        ("import ctypes; ctypes.string_at(0)", "signal SIGSEGV, no JSON printed"),
        ("1 +", "exit 1, no JSON printed: SyntaxError: invalid syntax"),
    ],
)
def test_a_program_that_fails_says_how_and_takes_no_other_along(text: str, reason: str, tmp_path: Path) -> None:
    other = Command(("echo", "still here"))
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    failing = Program("program")
    evidence = collect([failing, other], {"program": tmp_path / "program.py"})
    assert evidence.answers[failing.key].reason == reason
    assert evidence.text(other) == "still here\n"


def test_a_program_may_end_itself_with_success_and_with_a_number(tmp_path: Path) -> None:
    assert run("import sys; print(1); sys.exit()", tmp_path).value == 1
    assert run("import sys; print(2); sys.exit(3)", tmp_path).value == 2


def test_a_program_that_hangs_ends_at_its_deadline_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpxdoctor.collect._BUSY_S", 60)  # on a busy machine one that is killed takes its time to go
    text = "import subprocess, sys; child = subprocess.Popen(['sleep', '61']); print(child.pid); sys.stdout.flush()\n"
    text += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); child.wait()"
    answer = run(text, tmp_path, timeout_s=3.0)
    assert (answer.failure, answer.reason) == ("timeout", "no answer within 3 s")
    pid = (tmp_path / "pid").read_text(encoding="utf-8")
    assert ended(pid)


def test_a_program_that_is_not_where_it_should_be_says_so(tmp_path: Path) -> None:
    missing = Program("missing")
    answer = collect([missing], {"missing": tmp_path / "missing.py"}).answers[missing.key]
    assert answer.failure == "failed"
    assert "missing.py" in answer.reason


def test_secrets_that_a_program_prints_are_masked(tmp_path: Path) -> None:
    assert run("print('\"HF_TOKEN=hf_abcdefghijklmnopqrst\"')", tmp_path).value == "HF_TOKEN=***"
