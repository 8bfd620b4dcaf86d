"""What fix remembers: private records and one lock for each host, and what is told when they cannot be used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.fix import state
from lpxdoctor.fix.state import Record, Wishes


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "lpxdoctor" / "fix"


def record(host: str) -> Record:
    wishes = Wishes(source="/inv.yml", ids=("boot.a",), gpu_work="drain", drain_s=30)
    return Record(
        host=host, wishes=wishes, started="2026-11-29T00:00:00Z", stage="reboot", targets=("boot.a",), before="/b"
    )


def test_a_record_is_private_and_comes_back(own_state: Path) -> None:
    names = ("gpu-1", "fe80::1", "../../escape")
    for name in names:
        file = state.save(record(name))
        assert file.parent == own_state
        assert file.stat().st_mode & 0o777 == 0o600
        assert state.load(name) == record(name)
    assert state.hosts() == tuple(sorted(names))
    state.remove("gpu-1")
    state.remove("gpu-1")
    assert state.load("gpu-1") is None


@pytest.mark.parametrize("content", ["", "{", '{"schema": 2}', '{"schema": 1, "host": "gpu-1"}', "[]", "\x00"])
def test_a_damaged_record_is_told_with_what_to_type(own_state: Path, content: str) -> None:
    file = state.save(record("gpu-1"))
    file.write_text(content)
    with pytest.raises(UsageError, match=r"cannot be read.*(\n.*)*rm "):
        state.load("gpu-1")


def test_an_unknown_field_of_a_newer_version_is_no_silent_loss() -> None:
    file = state.save(record("gpu-1"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "more": 1}))
    with pytest.raises(UsageError, match="more"):
        state.load("gpu-1")


def test_a_state_directory_that_is_a_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="XDG_STATE_HOME"):
        state.save(record("gpu-1"))


def test_the_second_run_on_a_host_is_told_who_has_it() -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from lpxdoctor.fix import state\nwith state.locked('gpu-1'): print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout
        holder.stdout.readline()
        with state.locked("gpu-1") as refused, state.locked("gpu-2") as free:
            assert f"process {holder.pid}" in refused
            assert free == ""
        assert holder.stdin
        holder.stdin.close()
    with state.locked("gpu-1") as free:
        assert free == ""


def test_evidence_is_kept_privately() -> None:
    file = state.keep_evidence("gpu/1", "before", "{}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.name == "gpu%2F1-before.json"
    assert state.evidence_file("gpu/1", "before") == file
