"""Records of deployments: kept privately, read back, and told about when they are not there."""

import json
from pathlib import Path

import msgspec
import pytest

from lpxdoctor import deployments
from lpxdoctor.deployments import Deployment
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.state import state_dir


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "lpxdoctor"


def record(name: str) -> Deployment:
    return Deployment(
        name=name,
        host="gpu-1",
        url="http://127.0.0.1:8000",
        served_model="m",
        api_key_file=None,
        image="i",
        engine_version="1",
        arguments=("a",),
        model_path="/m",
        ssh=("ssh", "gpu-1"),
        created="2026-11-29T00:00:00+00:00",
    )


def test_a_record_is_private_and_comes_back(own_state: Path) -> None:
    for name in ("vllm", "vllm@[fe80::1]", "../../escape"):
        file = deployments.save(record(name))
        assert file.parent == own_state / "deployments"
        assert file.stat().st_mode & 0o777 == 0o600
        assert deployments.load(name) == record(name)
    assert own_state.stat().st_mode & 0o777 == 0o700
    assert deployments.names() == ("../../escape", "vllm", "vllm@[fe80::1]")
    assert sorted(path.name for path in (own_state / "deployments").iterdir()) == sorted(
        path.name for path in (own_state / "deployments").glob("*.json")
    )
    assert deployments.remove("vllm")
    assert not deployments.remove("vllm")


def test_a_record_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(UsageError, match="lpxdoctor deploy makes one"):
        deployments.load("a")
    deployments.save(record("b"))
    with pytest.raises(UsageError, match=r"No deployment named a.*\n.*b\."):
        deployments.load("a")


def test_a_record_that_is_broken_is_told() -> None:
    file = deployments.save(record("a"))
    file.write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        deployments.load("a")


def test_a_state_directory_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="XDG_STATE_HOME"):
        deployments.save(record("a"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_dir() == Path.home() / ".local/state/lpxdoctor"


def test_records_are_read_by_others_as_written() -> None:
    raw = json.loads(deployments.save(record("a")).read_text())
    assert raw["ssh"] == ["ssh", "gpu-1"]
    assert msgspec.convert(raw, Deployment) == record("a")
