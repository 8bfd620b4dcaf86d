"""What lpxdoctor must remember: the state directory, private directories below it, and locks that one process holds."""

import fcntl
import os
import pwd
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from lpxdoctor.errors import SetupError


def state_dir() -> Path:
    """Return the directory where lpxdoctor keeps what it must remember; it need not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "lpxdoctor"


def made(name: str) -> Path:
    """Return a directory below the state directory, private, and made where it is not there.

    Raises:
        SetupError: it cannot be made.
    """
    directory = state_dir() / name
    try:
        state_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"What must be remembered cannot be kept in {directory}: {error.strerror}.\n"
            "Set XDG_STATE_HOME to a directory that can be written, and run this again."
        ) from error
    return directory


def content(file: Path) -> bytes | None:
    """Return what a file holds that is remembered, None where there is no such file.

    Raises:
        SetupError: it cannot be read, and is not taken for one that is not there.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(file, error) from None


def records(name: str) -> tuple[Path, ...]:
    """Return the JSON files of a directory below the state directory, sorted; none where it is not there yet.

    Raises:
        SetupError: it cannot be read, and is not taken for an empty one.
    """
    directory = state_dir() / name
    try:
        return tuple(sorted(file for file in directory.iterdir() if file.suffix == ".json"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unreadable(directory, error) from None


def _unreadable(path: Path, error: OSError) -> SetupError:
    return SetupError(
        f"What is remembered in {path} cannot be read: {error.strerror}.\n"
        "Run this as the user who may, or set XDG_STATE_HOME to a directory of yours."
    )


@contextmanager
def held(lock: Path) -> Generator[str]:
    """Hold a lock file until the block ends; yield "" or, where another process holds it, which and since when."""
    with lock.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            yield file.read().strip() or "a process that has not written its number yet"
            return
        file.truncate(0)
        file.write(
            f"process {os.getpid()} of {_user()}, since {datetime.now(timezone.utc).isoformat(timespec='seconds')}\n"
        )
        file.flush()
        yield ""


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return f"user id {os.getuid()}"
