"""A profile survives being written and read, whole or not at all, and other files are refused."""

from pathlib import Path

import pytest

from lpxdoctor.decode import store
from lpxdoctor.decode.profile import Engine, Host, Profile, decode, encode
from lpxdoctor.errors import SetupError, UsageError
from tests.decode.recordings import recording, steady
from tests.decode.test_validity import judged

PROFILE = Profile(
    id="cafe01",
    started="2026-11-29T14:00:00Z",
    ended="2026-11-29T14:01:00Z",
    interrupted=False,
    lpxdoctor="0.1.0",
    command=("lpxdoctor", "baseline", "x"),
    nonce="cafe01babe",
    target="http://127.0.0.1:8000",
    deployment=None,
    reached="over loopback",
    model="tiny",
    precision=None,
    gpu=None,
    driver=None,
    input_len=8,
    input_exact=True,
    output_len=10,
    engine=Engine(version="0.32.0", image=None, arguments=None, max_model_len=None, cache_config=None),
    client_host=Host(name="h", kernel="6.1", cpu=None, cores=2),
    unknown={"precision": "not told"},
    rungs=(judged(recording(steady())),),
)


def test_a_profile_survives_being_written_and_read() -> None:
    assert decode(encode(PROFILE).encode(), "file") == PROFILE


def test_samples_are_a_line_each() -> None:
    lines = encode(PROFILE).splitlines()
    assert sum('"ttft_ms": [' in line and line.endswith("],") for line in lines) == len(PROFILE.rungs)
    assert len(lines) < 300


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": 2}', b'{"schema": 1}', b'"\xff"', b"[" * 9999])
def test_what_is_no_profile_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match=r"p\.json is no baseline"):
        decode(content, "p.json")


def test_a_profile_is_kept_below_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store.check(None)
    file = store.save(PROFILE, None)
    assert file == tmp_path / "lpxdoctor/baselines/2026-11-29T140000Z-cafe01.json"
    assert decode(file.read_bytes(), str(file)) == PROFILE


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text("old")
    store.save(PROFILE, file)
    assert decode(file.read_bytes(), "p") == PROFILE
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        store.check(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        store.check(tmp_path / "missing" / "p.json")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="-o FILE"):
        store.check(None)
