"""The archive of a bundle: a directory of files in, the same bytes for the same files out; and reading one again."""

import gzip
import hashlib
import importlib.util
import io
import lzma
import os
import tarfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, cast

import msgspec

from lpxdoctor import bundled, files
from lpxdoctor.airgap.manifest import File, Manifest, decode, encode
from lpxdoctor.errors import SetupError, UsageError

# What every host's Python can read: zstd is in the standard library of 3.14 only.
SUFFIXES = (".tar", ".tar.gz", ".tar.xz")
_READER = bundled.PLAYBOOKS / "roles" / "bundle" / "module_utils" / "bundle_archive.py"
_CHUNK = 1 << 20


def files_below(directory: Path) -> dict[str, File]:
    """Return all files of a directory, sorted: path below it -> hash and size."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): _file(path) for path in found}


def write(output: Path, manifest: Manifest, directory: Path) -> str:
    """Write the archive in one step and return the sha256 of its manifest.

    Owners and times of files are left out, so that the same files give the same bytes.

    Raises:
        SetupError: it cannot be written; nothing is left of it.
    """
    content = encode(manifest)
    temporary = output.with_name(f".{output.name}-{os.getpid()}")
    try:
        try:
            with temporary.open("wb") as file:
                _fill(file, output, content, manifest, directory)
            temporary.replace(output)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise SetupError(
            f"{output} cannot be written: {error.strerror or error}.\nGive -o a place with more room, or another one."
        ) from error
    return hashlib.sha256(content).hexdigest()


def check_name(output: Path) -> None:
    """Raise UsageError where the archive's name says no form that can be written, or it cannot be written there."""
    if not output.name.endswith(SUFFIXES):
        raise UsageError(f"{output}: name it with one of {', '.join(SUFFIXES)}, which every host's Python can read.")
    files.check_writable(output)


def show(archive: Path) -> tuple[Manifest, str]:
    """Return the manifest and its sha256, without reading the rest."""
    return _read("read_manifest", archive)


def verify(archive: Path) -> tuple[Manifest, str]:
    """Return the manifest and its sha256 when every file is the one that it names."""
    return _read("verify", archive)


def unpack(archive: Path, directory: Path, below: str = "") -> tuple[Manifest, str]:
    """Verify all and unpack what is below a path into a directory, which appears only when all was right."""
    return _read("unpack", archive, directory, below)


def _read(function: str, *arguments: Path | str) -> tuple[Manifest, str]:
    reader = _reader()
    try:
        content, digest = getattr(reader, function)(*arguments)
        return decode(content), digest
    except reader.BundleError as error:
        raise UsageError(str(error)) from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{arguments[0]} has a manifest that this version cannot read: {error}.") from None


def _reader() -> ModuleType:
    """Return the role's own reader: hosts and this machine judge an archive by the same code."""
    spec = importlib.util.spec_from_file_location("bundle_archive", _READER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _file(path: Path) -> File:
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hashed.update(chunk)
    return File(sha256=hashed.hexdigest(), size=path.stat().st_size)


def _fill(file: IO[bytes], output: Path, content: bytes, manifest: Manifest, directory: Path) -> None:
    with _compressed(file, output) as stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(_member("manifest.json", len(content)), io.BytesIO(content))
        for name, told in sorted(manifest.files.items()):
            with (directory / name).open("rb") as packed:
                tar.addfile(_member(name, told.size), packed)


@contextmanager
def _compressed(file: IO[bytes], output: Path) -> Generator[IO[bytes]]:
    with ExitStack() as stack:
        if output.name.endswith(".gz"):  # the fastest level: what packages and wheels hold is compressed already
            zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=file, mtime=0)
            yield cast("IO[bytes]", stack.enter_context(zipped))
        elif output.name.endswith(".xz"):
            yield cast("IO[bytes]", stack.enter_context(lzma.LZMAFile(file, "wb", preset=1)))
        else:
            yield file


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member
