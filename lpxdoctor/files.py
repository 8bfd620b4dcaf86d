"""A file to be written whole or not at all: where and what in, the file in its place out."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(target: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file in a single step; on any failure the former one stays, and nothing else does.

    Raises:
        OSError: it cannot be written there.
    """
    descriptor, temporary = tempfile.mkstemp(dir=target.resolve().parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
