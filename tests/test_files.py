"""Files that people name: read with a reason where that fails, and written whole, through links and into devices."""

import os
from pathlib import Path

import pytest

from lpxdoctor import files
from lpxdoctor.errors import UsageError
from tests.beside import beside


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "null byte"),
        ("binary", "it is not UTF-8 text"),
        ("/dev/zero", "it has more than 0 MiB"),
    ],
)
def test_what_cannot_be_read_has_its_reason(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    Path("binary").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(UsageError, match=f"cannot be read: .*{reason}"):
        files.read_text(name)


def test_a_list_of_many_hosts_is_no_file() -> None:
    assert not files.is_there(",".join(f"root@10.0.0.{number}" for number in range(200)))
    assert not files.is_there("a\0b")
    assert files.is_there("/")


def test_what_cannot_be_written_is_said_before(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "none" / "file", Path("a\0b"), Path("x" * 300, "y")):
        with pytest.raises(UsageError, match="cannot be written: name a file in a directory that exists and is yours"):
            files.check_writable(wrong)
    for right in (tmp_path / "new", Path("/dev/stdout"), Path("/dev/null")):
        files.check_writable(right)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("before", encoding="utf-8")
    (tmp_path / "link").symlink_to("kept/file")
    files.write_whole(tmp_path / "link", b"after", mode=0o644)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "file").read_bytes() == b"after"
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["file"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with beside(pipe.read_bytes) as read:
        files.write_whole(pipe, b"told")
    assert read.result() == b"told"
    assert pipe.is_fifo()
