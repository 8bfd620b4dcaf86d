"""A command becomes an engine that answers, and nothing of it is left: real processes."""

import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.tune.command import command, without
from lpxdoctor.tune.service import NotStartedError, Settings, StoppedError
from tests.lab.engine import wait_until

ENGINE = Path(__file__).with_name("engine.py")
RECIPE = f"{sys.executable} {ENGINE} --port {{port}} {{arguments}}"


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def never() -> bool:
    return False


def ended(pid: str) -> bool:
    """Return whether a process comes to its end, which one that was killed takes a moment for."""
    deadline = time.monotonic() + 60
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not lives(pid)


def test_an_engine_answers_while_the_block_lasts_and_takes_its_children_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    service = command(RECIPE, 60)
    with service.running(Settings(("--child", "--note", str(note))), never) as url:
        with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
            assert answer.status == 200
        pids = note.read_text().split()
        assert [lives(pid) for pid in pids] == [True, True]
    assert [lives(pid) for pid in pids] == [False, False]


def test_one_that_ignores_the_polite_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpxdoctor.tune.command._GRACE_S", 0.3)
    note = tmp_path / "pids"
    with command(RECIPE, 60).running(Settings(("--stubborn", "--note", str(note))), never):
        pid = note.read_text()
    assert ended(pid)


def test_one_that_fails_is_told_by_its_error_and_its_log_is_kept() -> None:
    with (
        pytest.raises(NotStartedError, match="ended with status 3: ValueError: no such format") as caught,
        command(RECIPE, 60).running(Settings(("--fails", "no such format")), never),
    ):
        pass
    assert "INFO starting" in Path(caught.value.kept).read_text()
    assert caught.value.log[-1] == "INFO the end"


def test_one_that_does_not_speak_http_is_given_up() -> None:
    mute = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    mute += "[s.accept()[0].sendall(b'220 mail\\r\\n') for _ in range(99)]"
    with (
        pytest.raises(NotStartedError, match="no answer at /health within 2 s"),
        command(f'{sys.executable} -c "{mute}" {{port}} {{arguments}}', 2).running(Settings(()), never),
    ):
        pass


def test_one_that_never_answers_is_given_up(tmp_path: Path) -> None:
    note = tmp_path / "pids"

    def once_begun() -> bool:
        """Hold what waits for the engine until that has begun, however long it takes; it is not to stop."""
        wait_until(lambda: note.exists() and bool(note.read_text()), "the engine's note", str, 60)
        return False

    with (
        pytest.raises(NotStartedError, match="no answer at /health within 1 s"),
        command(RECIPE, 1).running(Settings(("--never", "--note", str(note))), once_begun),
    ):
        pass
    assert ended(note.read_text())


def test_a_stop_ends_the_start(tmp_path: Path) -> None:
    note = tmp_path / "pids"

    def soon() -> bool:
        return note.exists() and bool(note.read_text())

    waiting: Callable[[], bool] = soon
    with (
        pytest.raises(StoppedError),
        command(RECIPE, 60).running(Settings(("--never", "--note", str(note))), waiting),
    ):
        pass
    assert ended(note.read_text())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve m {arguments}", "no {port}"),
        ("vllm serve m --port {port}", "no {arguments}"),
        ("vllm serve m --port {port} --x={arguments}", "a word of its own"),
        ("vllm 'serve {port} {arguments}", "no command line"),
    ],
)
def test_a_recipe_without_its_places_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command(text, 1)


def test_a_program_that_is_not_there_is_wrong_use() -> None:
    with (
        pytest.raises(UsageError, match="/no/such cannot be started"),
        command("/no/such {port} {arguments}", 1).running(Settings(), never),
    ):
        pass


def test_the_recipe_tells_its_model_and_flags() -> None:
    hints = command("vllm serve /srv/m --enforce-eager -q fp8 --port {port} {arguments}", 1).hints
    assert hints.model == "/srv/m"
    assert hints.flags["--quantization"] == "fp8"
    assert "--enforce-eager" in hints.flags
    assert command("python -m x --model=/srv/m --port {port} {arguments}", 1).hints.model == "/srv/m"


def test_settings_are_added_at_their_place_and_flags_taken_away() -> None:
    service = command("e --enforce-eager --max-num-seqs 4 --port {port} {arguments} --last", 1)
    settings = Settings(("--max-num-seqs", "8"), ("--enforce-eager",))
    assert service.argv(settings, 7) == ("e", "--max-num-seqs", "4", "--port", "7", "--max-num-seqs", "8", "--last")
    assert without(["a", "--x", "1", "--y"], ["--x"]) == ["a", "--y"]
    assert without(["a", "--x=1", "--y"], ["--x"]) == ["a", "--y"]
