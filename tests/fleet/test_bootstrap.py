"""Where the collector is put on a host, and that it goes again."""

from pathlib import Path

import pytest

from lpxdoctor.fleet import bootstrap

FILES = {"a/b.py": "1\n", "c.py": "é\n"}


def test_the_first_place_with_room_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    directory = Path(bootstrap.unpack(FILES, (None, str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path))))
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "c.py").read_text(encoding="utf-8") == "é\n"


def test_half_of_it_is_removed_where_the_room_does_not_do(tmp_path: Path) -> None:
    tight, wide = tmp_path / "tight", tmp_path / "wide"
    tight.mkdir()
    wide.mkdir()
    files = {**FILES, "x" * 300: ""}  # no file system has such a name
    with pytest.raises(SystemExit) as end:
        bootstrap.unpack(files, (str(tight), str(wide)))
    assert str(end.value) == f"lpxdoctor: no room: {tight}: File name too long, {wide}: File name too long"
    assert not list(tmp_path.glob("*/*"))
