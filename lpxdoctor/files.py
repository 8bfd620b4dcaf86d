"""Files that people name: their text, whether they are there or can be written; one written whole, or not."""

import contextlib
import os
import tempfile
from pathlib import Path

from lpxdoctor.errors import UsageError

MOST_BYTES = 256 << 20


def read_text(path: str | Path) -> str:
    """Return the text of a file; UsageError where it cannot be read, is no UTF-8 or has more than MOST_BYTES."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)  # a device such as /dev/zero has no end
        if len(content) > MOST_BYTES:
            raise UsageError(f"{path} cannot be read: it has more than {MOST_BYTES >> 20} MiB.")
        return content.decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it is not UTF-8 text.") from None
    except ValueError as error:  # a null byte in the name
        raise UsageError(f"{str(path)!r} cannot be read: {error}.") from None


def is_there(typed: str) -> bool:
    """Tell whether there is a file or directory of a name; UsageError where this user may not look."""
    try:
        return Path(typed).exists()
    except PermissionError as error:
        raise UsageError(f"{typed} cannot be read: {error.strerror}.") from None
    except (OSError, ValueError):  # too long for a name, or with a null byte, as a list of many hosts is
        return False


def check_writable(file: Path) -> None:
    """Raise UsageError where a file could not be written: before the work whose result it is to hold."""
    if str(file) == "-":
        raise UsageError("- is no file to write to.\nFor standard output, name /dev/stdout.")
    try:
        usable = not file.is_dir() and os.access(file if _is_special(file) else file.resolve().parent, os.W_OK)
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise UsageError(f"{file} cannot be written: name a file in a directory that exists and is yours.")


def write_whole(target: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file in a single step; on any failure the former one stays, and nothing else does.

    A device or a pipe, such as /dev/stdout, is written to.

    Raises:
        OSError: it cannot be written there.
    """
    if _is_special(target):
        target.write_bytes(content)
        return
    target = target.resolve()  # what a link leads to is replaced, not the link
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


def _is_special(file: Path) -> bool:
    return file.exists() and not file.is_file() and not file.is_dir()
