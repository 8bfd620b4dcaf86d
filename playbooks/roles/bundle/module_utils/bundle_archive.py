"""Read a bundle: an archive in; its manifest, and its files in a directory, out, or why it cannot be trusted.

Standard library alone and Python 3.9 syntax: it runs on the hosts, and where the playbooks are started.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, Any

MANIFEST = "manifest.json"
SCHEMA = 2
MANIFEST_LIMIT = 64 << 20  # bytes; a real one has about 300 for each file
CHUNK = 1 << 20


class BundleError(Exception):
    """An archive that cannot be used; the message is for people."""


def read_manifest(archive: Path) -> tuple[dict[str, Any], str]:
    """Return the manifest and its sha256, which stand at the beginning; the rest of the archive is not read."""
    with _opened(archive) as tar:
        manifest, content = _manifest_of(archive, iter(tar), tar)
    return manifest, hashlib.sha256(content).hexdigest()


def verify(archive: Path) -> tuple[dict[str, Any], str]:
    """Return the manifest and its sha256 when every file of the archive is the one that the manifest names."""
    return _walk(archive, None)


def unpack(archive: Path, directory: Path, below: str = "") -> tuple[dict[str, Any], str]:
    """Verify and unpack into a directory, which is replaced in one step, and only when all was right.

    Of the files, only those whose path begins with below are written; all are verified.
    """
    staged = directory.with_name(directory.name + ".new")
    former = directory.with_name(directory.name + ".former")
    for left in (staged, former):  # of a run that was interrupted
        shutil.rmtree(left, ignore_errors=True)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        staged.mkdir()
        found = _walk(archive, staged, below)
        if directory.exists():
            directory.rename(former)
        staged.rename(directory)
    except OSError as error:
        raise BundleError(
            f"{directory} cannot be written: {error.strerror or error}.\nNothing of it is used."
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    shutil.rmtree(former, ignore_errors=True)
    return found


def is_unpacked(directory: Path, manifest_sha256: str) -> bool:
    """Tell whether a directory holds exactly this bundle, every file with its hash."""
    try:
        content = (directory / MANIFEST).read_bytes()
        if hashlib.sha256(content).hexdigest() != manifest_sha256:
            return False
        return all(_hash_of(directory / name) == told["sha256"] for name, told in json.loads(content)["files"].items())
    except OSError:
        return False


def unpacked_bytes(manifest: dict[str, Any]) -> int:
    """Return how much room the files of a bundle take."""
    return sum(int(told["size"]) for told in manifest["files"].values())


def _opened(archive: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(archive, "r|*")
    except FileNotFoundError:
        raise BundleError(f"There is no file {archive}.") from None
    except OSError as error:
        raise BundleError(f"{archive} cannot be read: {error.strerror or error}.") from error
    except (tarfile.TarError, EOFError, zlib.error, LZMAError) as error:
        raise BundleError(f"{archive} is no bundle, or its beginning is damaged: {error}.") from error


def _walk(archive: Path, directory: Path | None, below: str = "") -> tuple[dict[str, Any], str]:
    with _opened(archive) as tar:
        members = iter(tar)
        manifest, content = _manifest_of(archive, members, tar)
        missing = dict(manifest["files"])
        for member in _guarded(archive, members):
            told = missing.pop(member.name, None)
            if told is None:
                raise BundleError(f"{archive} has {member.name!r}, which its manifest does not name, or twice.")
            _take(archive, tar, member, told, directory if member.name.startswith(below) else None)
    if missing:
        raise BundleError(f"{archive} lacks {len(missing)} files of its manifest, such as {min(missing)}: it was cut.")
    if directory is not None:
        (directory / MANIFEST).write_bytes(content)
        _open_to_all(directory)
    return manifest, hashlib.sha256(content).hexdigest()


def _manifest_of(
    archive: Path, members: Iterator[tarfile.TarInfo], tar: tarfile.TarFile
) -> tuple[dict[str, Any], bytes]:
    first = next(_guarded(archive, members), None)
    if first is None or first.name != MANIFEST or first.size > MANIFEST_LIMIT:
        raise BundleError(f"{archive} is no bundle: it does not begin with {MANIFEST}.")
    try:
        content = _reader(tar, first).read()
        manifest = json.loads(content)
    except (OSError, EOFError, zlib.error, LZMAError, tarfile.TarError, ValueError) as error:
        raise BundleError(f"{archive} is damaged in its manifest: {error}.") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        older = isinstance(schema, int) and schema < SCHEMA
        raise BundleError(
            f"{archive} has a manifest of schema {schema}; this version reads {SCHEMA}.\n"
            + ("Make the bundle again with this version." if older else "Apply it with the version that made it.")
        )
    _check_names(archive, manifest)
    return manifest, content


def _check_names(archive: Path, manifest: dict[str, Any]) -> None:
    files = manifest.get("files")
    if not isinstance(files, dict) or not isinstance(manifest.get("target"), dict):
        raise BundleError(f"{archive} has a manifest without files or target.")
    for name, told in files.items():
        if (
            not isinstance(told, dict)
            or not isinstance(told.get("sha256"), str)
            or not isinstance(told.get("size"), int)
        ):
            raise BundleError(f"{archive} does not say the sha256 and size of {name!r}.")
        _refuse_path(archive, name)


def _refuse_path(archive: Path, name: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or str(PurePosixPath(name)) != name or "\0" in name:
        raise BundleError(f"{archive} has a file {name!r}, whose path leads out of it. It is not used.")


def _guarded(archive: Path, members: Iterator[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
    """Yield the members, each a plain file below the archive's root."""
    while True:
        try:
            member = next(members, None)
        except (OSError, EOFError, zlib.error, LZMAError, tarfile.TarError) as error:
            raise BundleError(f"{archive} is damaged or was cut: {error}.") from error
        if member is None:
            return
        _refuse_path(archive, member.name)
        if not member.isreg():
            raise BundleError(f"{archive} has {member.name!r}, which is no plain file. It is not used.")
        yield member


def _take(
    archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, told: dict[str, Any], directory: Path | None
) -> None:
    """Hash one file, and write it where a directory is given."""
    if member.size != told["size"]:
        raise BundleError(f"{archive}: {member.name} has {member.size} bytes, its manifest says {told['size']}.")
    hashed = hashlib.sha256()
    target = None if directory is None else _made(directory, member.name)
    sink: IO[bytes] | None = None if target is None else target.open("wb")
    try:
        for chunk in _chunks(archive, _reader(tar, member), member.name):
            hashed.update(chunk)
            if sink is not None:
                sink.write(chunk)
    finally:
        if sink is not None:
            sink.close()
    if hashed.hexdigest() != told["sha256"]:
        raise BundleError(
            f"{archive}: {member.name} is not what was packed: sha256 {hashed.hexdigest()}, its manifest says "
            f"{told['sha256']}."
        )


def _chunks(archive: Path, reader: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = reader.read(CHUNK)
        except (OSError, EOFError, zlib.error, LZMAError, tarfile.TarError) as error:
            raise BundleError(f"{archive} is damaged or was cut in {name}: {error}.") from error
        if not chunk:
            return
        yield chunk


def _reader(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    reader = tar.extractfile(member)
    assert reader is not None  # a plain file has one
    return reader


def _made(directory: Path, name: str) -> Path:
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _open_to_all(directory: Path) -> None:
    """Let apt's own user read it, whatever the umask: it has no rights of root while it fetches."""
    for place, _, names in os.walk(directory):
        os.chmod(place, 0o755)  # noqa: PTH101, S103
        for name in names:
            os.chmod(os.path.join(place, name), 0o644)  # noqa: PTH101, PTH118


def _hash_of(file: Path) -> str:
    hashed = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
