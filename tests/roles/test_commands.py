"""How roles run commands on a host: within a time limit, in English, and with an error that modules can tell."""

from pathlib import Path

import pytest

from tests.roles.loading import program, shared

COMMANDS = shared("commands")


def test_a_command_tells_its_status_and_what_it_said_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.GBK")
    done = COMMANDS.run("sh", "-c", "echo $LC_ALL; echo no >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "C.UTF-8\n", "no\n")


def test_a_command_that_waits_for_input_gets_none() -> None:
    assert COMMANDS.run("cat", limit_s=10).stdout == ""


def test_a_command_that_does_not_end_is_an_error_that_names_it(tmp_path: Path) -> None:
    program(tmp_path / "rpm", "exec sleep 60")
    with pytest.raises(OSError, match="did not end within 0 s") as caught:
        COMMANDS.run(str(tmp_path / "rpm"), "-qa", limit_s=0.2)
    assert caught.value.filename == f"{tmp_path}/rpm -qa"
