"""Archives: the same bytes for the same files, and nothing used of one that is not what was packed."""

import hashlib
import io
import json
import os
import resource
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lpxdoctor.airgap import archive
from lpxdoctor.airgap.manifest import encode
from lpxdoctor.errors import SetupError, UsageError
from tests.airgap.bundles import CONTENTS, contents, manifest_of, written

Member = tuple[tarfile.TarInfo, bytes]


def plain(name: str, content: bytes) -> Member:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def special(name: str, kind: bytes, link: str = "") -> Member:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member, b""


def packed(file: Path, *members: Member) -> Path:
    with tarfile.open(file, "w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return file


def manifest(directory: Path, **files: object) -> bytes:
    """Return a manifest of the usual files, with entries replaced or added."""
    whole = json.loads(encode(manifest_of(contents(directory))))
    return json.dumps({**whole, "files": {**whole["files"], **files}}).encode()


@pytest.mark.parametrize("suffix", archive.SUFFIXES)
def test_the_same_files_give_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    one = written(tmp_path / f"one{suffix}")
    for file in (tmp_path / f"one{suffix}.content").rglob("*"):
        os.utime(file, (1, 1))
        file.chmod(0o700)
    directory = tmp_path / f"one{suffix}.content"
    archive.write(tmp_path / f"two{suffix}", manifest_of(directory), directory)
    assert one.read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", archive.SUFFIXES)
def test_what_was_packed_is_unpacked(suffix: str, tmp_path: Path) -> None:
    file = written(tmp_path / f"bundle{suffix}")
    told, digest = archive.unpack(file, tmp_path / "out")
    assert digest == hashlib.sha256((tmp_path / "out/manifest.json").read_bytes()).hexdigest()
    assert (told, digest) == archive.verify(file) == archive.show(file)
    for name, content in CONTENTS.items():
        assert (tmp_path / "out" / name).read_bytes() == content
        assert (tmp_path / "out" / name).stat().st_mode & 0o777 == 0o644
    archive.unpack(file, tmp_path / "part", below="collections/")
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == ["collections", "manifest.json"]


@pytest.mark.parametrize("suffix", archive.SUFFIXES)
def test_an_archive_that_was_cut_is_refused(suffix: str, tmp_path: Path) -> None:
    whole = written(tmp_path / f"bundle{suffix}").read_bytes()
    cut = tmp_path / f"cut{suffix}"
    # At the end is padding, which belongs to no file: a few hundred bytes where it is compressed.
    end = whole.rstrip(b"\0") if suffix == ".tar" else whole[: len(whole) * 3 // 4]
    for length in sorted({0, 1, 100, 511, 512, 600, *range(0, len(end), 997), len(end) - 1}):
        cut.write_bytes(whole[:length])
        with pytest.raises(UsageError):
            archive.unpack(cut, tmp_path / "out")
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("out")) == []


def test_every_changed_byte_of_a_file_is_noticed(tmp_path: Path) -> None:
    file = written(tmp_path / "bundle.tar")
    whole = file.read_bytes()
    begin = whole.index(b"wheelwheel")
    for place in (begin, begin + 2500, begin + 4999):
        file.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        with pytest.raises(UsageError, match=r"wheels/a\.whl is not what was packed"):
            archive.unpack(file, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_refused_archive_leaves_the_former_one(tmp_path: Path) -> None:
    file = written(tmp_path / "bundle.tar")
    archive.unpack(file, tmp_path / "out")
    file.write_bytes(file.read_bytes().replace(b"text", b"t?xt"))
    with pytest.raises(UsageError):
        archive.unpack(file, tmp_path / "out")
    assert (tmp_path / "out/collections/x/y.txt").read_bytes() == b"text"
    archive.unpack(written(tmp_path / "again.tar"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out"]


EVIL: dict[str, tuple[Callable[[], Member], str]] = {
    "an absolute path": (lambda: plain("/etc/evil", b"x"), "leads out"),
    "a path upwards": (lambda: plain("packages/../../evil", b"x"), "leads out"),
    "a symbolic link": (lambda: special("packages/Packages", tarfile.SYMTYPE, "/etc/passwd"), "no plain file"),
    "a hard link": (lambda: special("packages/Packages", tarfile.LNKTYPE, "manifest.json"), "no plain file"),
    "a device": (lambda: special("packages/Packages", tarfile.CHRTYPE), "no plain file"),
    "a directory": (lambda: special("packages", tarfile.DIRTYPE), "no plain file"),
    "a file that nobody named": (lambda: plain("extra", b"x"), "does not name"),
    "another size": (lambda: plain("wheels/a.whl", b"x"), "has 1 bytes"),
}


@pytest.mark.parametrize("what", EVIL)
def test_what_leads_out_of_the_archive_is_refused(what: str, tmp_path: Path) -> None:
    member, message = EVIL[what]
    head = plain("manifest.json", manifest(tmp_path / "content"))
    file = packed(tmp_path / "evil.tar", head, member(), *(plain(*one) for one in CONTENTS.items()))
    with pytest.raises(UsageError, match=message):
        archive.unpack(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_twice_or_not_at_all_is_refused(tmp_path: Path) -> None:
    head = plain("manifest.json", manifest(tmp_path / "content"))
    all_files = [plain(*one) for one in CONTENTS.items()]
    with pytest.raises(UsageError, match="or twice"):
        archive.verify(packed(tmp_path / "twice.tar", head, *all_files, all_files[0]))
    with pytest.raises(UsageError, match="lacks 1 files"):
        archive.verify(packed(tmp_path / "less.tar", head, *all_files[1:]))


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../b", "a//b", "", "./a", "a\0b"])
def test_a_manifest_with_such_a_path_is_refused(name: str, tmp_path: Path) -> None:
    content = manifest(tmp_path / "content", **{name: {"sha256": "0", "size": 0}})
    with pytest.raises(UsageError, match="leads out"):
        archive.show(packed(tmp_path / "evil.tar", plain("manifest.json", content)))


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": "2"}', b'{"schema": 2}'),
        *(b'{"schema": 2, "target": {}, "files": {"a": 1}}', b'{"schema": 2, "target": {}, "files": {}}'),
    ],
)
def test_what_is_no_manifest_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"manifest|sha256"):
        archive.show(packed(tmp_path / "odd.tar", plain("manifest.json", content)))


@pytest.mark.parametrize(
    ("schema", "message"),
    [(0, "Make the bundle again"), (1, "Make the bundle again"), (3, "Apply it with the version")],
)
def test_a_manifest_of_another_version_says_what_to_do(schema: int, message: str, tmp_path: Path) -> None:
    content = json.dumps({**json.loads(manifest(tmp_path / "content")), "schema": schema}).encode()
    with pytest.raises(UsageError, match=f"schema {schema}; this version reads 2.\n{message}"):
        archive.show(packed(tmp_path / "other.tar", plain("manifest.json", content)))


@pytest.mark.parametrize("content", [b"", b"no archive at all\n" * 100, bytes(10240)])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(content)
    with pytest.raises(UsageError, match="no bundle"):
        archive.verify(tmp_path / "odd")
    with pytest.raises(UsageError, match="There is no file"):
        archive.verify(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read"):
        archive.verify(tmp_path)


def test_where_it_cannot_be_written_nothing_is_left(tmp_path: Path) -> None:
    directory = contents(tmp_path / "content")
    told = manifest_of(directory)
    (directory / "wheels/a.whl").unlink()
    with pytest.raises(SetupError, match="cannot be written"):
        archive.write(tmp_path / "bundle.tar", told, directory)
    assert [path.name for path in tmp_path.iterdir()] == ["content"]
    for name in ("bundle.zip", "bundle.tar.zst", "none/bundle.tar"):
        with pytest.raises(UsageError):
            archive.check_name(tmp_path / name)


@pytest.mark.parametrize("suffix", archive.SUFFIXES)
def test_where_there_is_no_room_for_the_last_bytes_the_former_one_stays(suffix: str, tmp_path: Path) -> None:
    """They are written when the file is closed; a limit on the size of files is a full disk to a program."""
    file = written(tmp_path / f"bundle{suffix}")
    whole, directory = file.read_bytes(), file.with_name(f"{file.name}.content")
    told = manifest_of(directory)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) - 1, hard))
    try:
        with pytest.raises(SetupError, match="cannot be written"):
            archive.write(file, told, directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert file.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, f"{file.name}.content"]
