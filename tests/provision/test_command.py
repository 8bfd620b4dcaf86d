"""The command before any host is asked: plans, and what is refused."""

import io
import os
import sys
from pathlib import Path

import pytest

from lpxdoctor.cli import run
from lpxdoctor.provision import record as records


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_plan_has_the_batches_and_what_each_host_has_to_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = ",".join(f"gpu-{number}" for number in range(1, 6))
    assert run(["provision", "-i", hosts, "--serial", "1,50%", "--plan"]) == 0
    assert capsys.readouterr().out == (
        "5 hosts: playbooks → check; stops once 1 failed\n"
        "  1  canary      gpu-1\n"
        "  2  1 host      gpu-2\n"
        "  3  2 hosts     gpu-3, gpu-4\n"
        "  4  1 host      gpu-5\n"
    )
    variables = tmp_path / "engine.yml"
    variables.write_text("engine_model: /srv/m\n")
    assert run(["provision", "-i", hosts, "--vars", str(variables), "--variant", "cpu", "--plan"]) == 0
    assert "playbooks → check → deploy → baseline" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_any_terminal_can_show_it(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert run(["provision", "-i", "a", "--plan"]) == 0
    sys.stdout.flush()
    told = raw.getvalue().decode(encoding)
    assert "\\u" not in told
    assert "playbooks > check" in told.replace("→", ">")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--variant", "none"), "There is no variant none.\nThere are: "),
        (("--serial", "0"), "--serial 0: '0' is no size of a batch."),
        (("--resume",), "No run with -i a,b is on record"),
        (("--vars", "none.yml"), "none.yml cannot be read"),
        (("--name", "a/b"), "'a/b' cannot be a name"),
    ],
)
def test_what_cannot_be_is_refused_before_a_host_is_asked(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["provision", "-i", "a,b", *options]) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert not records.file_of("a,b").exists()


def test_who_has_the_inventory_is_told_and_a_plan_waits_for_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with records.locked("a,b"):
        assert run(["provision", "-i", "a,b"]) == 64
        assert f"process {os.getpid()} of " in capsys.readouterr().err
        assert run(["provision", "-i", "a,b", "--plan"]) == 0
