"""The collections: which place has them, and that they can be had where Galaxy cannot be reached."""

import json
from pathlib import Path

import pytest

from lpxdoctor import galaxy
from lpxdoctor.errors import SetupError
from lpxdoctor.state import state_dir


def collection(place: Path, name: str, version: str) -> None:
    manifest = place / "ansible_collections" / name.replace(".", "/", 1) / "MANIFEST.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"collection_info": {"version": version}}))


def test_a_collection_is_used_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = galaxy.requirements()
    for name, version in wanted.items():
        collection(tmp_path, name, str(version))
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", f"/nonexistent:{tmp_path}")
    assert galaxy.ensure() == tmp_path
    for found, fits in (("4.99.0", True), ("4.0.0", False), ("5.0.0", False)):
        collection(tmp_path, "community.docker", found)
        assert galaxy.satisfied(tmp_path) is fits
    assert not galaxy.satisfied(tmp_path / "none")


@pytest.mark.slow
def test_collections_are_fetched_once_into_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))  # no collection of the user's
    monkeypatch.delenv("ANSIBLE_COLLECTIONS_PATH", raising=False)
    place = galaxy.ensure()
    assert place == state_dir() / "collections"
    assert galaxy.satisfied(place)
    assert [path.name for path in state_dir().iterdir()] == ["collections"]
    assert {path.name for path in (place / "ansible_collections/community").iterdir()} >= {
        name.partition(".")[2] for name in galaxy.requirements()
    }
    monkeypatch.setattr("sys.executable", "/nonexistent")  # whatever would be run now fails
    assert galaxy.ensure() == place


def test_where_nothing_can_be_fetched_it_is_told_what_to_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ANSIBLE_COLLECTIONS_PATH", raising=False)
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(SetupError, match=r"community\.docker could be had neither from Galaxy nor from PyPI"):
        galaxy.ensure()
    assert list(state_dir().iterdir()) == []
