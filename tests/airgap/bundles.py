"""Small bundles for tests: a file name and a target in, a whole archive that no network was needed for out."""

from pathlib import Path
from typing import Any

import msgspec

from lpxdoctor.airgap import archive
from lpxdoctor.airgap.manifest import Manifest, System
from lpxdoctor.airgap.target import TARGETS, Target

CONTENTS = {"packages/Packages": b"", "wheels/a.whl": b"wheel" * 1000, "collections/x/y.txt": b"text"}


def manifest_of(directory: Path, target: Target = TARGETS[0], **changed: Any) -> Manifest:
    """Return the manifest of a directory's files."""
    plain = Manifest(
        created="2026-11-29T00:00:00+00:00",
        lpxdoctor="0",
        target=msgspec.convert(target, System, from_attributes=True),
        words=(),
        variables={},
        install=(),
        packages=(),
        wheels=(),
        collections=(),
        images=(),
        files=archive.files_below(directory),
    )
    return msgspec.structs.replace(plain, **changed)


def contents(directory: Path) -> Path:
    """Write the files of a bundle."""
    for name, content in CONTENTS.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return directory


def written(file: Path, target: Target = TARGETS[0]) -> Path:
    """Write an archive and return its file."""
    directory = contents(file.with_name(f"{file.name}.content"))
    archive.write(file, manifest_of(directory, target), directory)
    return file
