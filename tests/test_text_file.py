"""A file that a role edits on a host: its bytes, its owner, its mode and its place."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.roles.loading import shared

text_file = shared("text_file")


@given(st.binary())
def test_any_bytes_come_back(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any-bytes"
    file.write_bytes(raw)
    text = text_file.read(file)
    file.write_bytes(b"other")
    text_file.write(file, text)
    assert file.read_bytes() == raw
    assert len(text_file.printable(text).encode().decode()) == len(text)


def test_owner_mode_and_place_stay(tmp_path: Path) -> None:
    place, link = tmp_path / "kept", tmp_path / "link"
    place.write_bytes(b"a")
    place.chmod(0o640)
    link.symlink_to(place)
    if os.geteuid() == 0:
        os.chown(place, 12, 34)
    before = place.stat()
    text_file.write(link, "b")
    now = place.stat()
    assert (place.read_bytes(), link.is_symlink()) == (b"b", True)
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]


def test_where_there_is_no_room_the_file_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("as it was")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))  # bytes
    try:
        with pytest.raises(OSError, match="too large"):
            text_file.write(file, "something else")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [file]
