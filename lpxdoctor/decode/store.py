"""A profile in, its file out, whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from lpxdoctor.decode.profile import Profile, encode
from lpxdoctor.deployments import state_dir
from lpxdoctor.errors import SetupError, UsageError


def directory() -> Path:
    """Return where profiles are kept when no file is named; it need not exist yet."""
    return state_dir() / "baselines"


def check(named: Path | None) -> None:
    """Fail now rather than after the measurement when the profile could not be written.

    Raises:
        UsageError: the file named cannot be written there.
        SetupError: the state directory cannot be.
    """
    if named is not None:
        if named.is_dir() or not os.access(named.resolve().parent, os.W_OK):
            raise UsageError(f"{named} cannot be written: name a file in a directory that exists and is yours.")
        return
    try:
        directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_state(error) from None


def save(profile: Profile, named: Path | None) -> Path:
    """Write the profile to the file named, else to one of its own in directory(); return the file.

    Raises:
        UsageError: the file named cannot be written.
        SetupError: the state directory cannot be.
    """
    file = named or directory() / f"{profile.started.replace(':', '')}-{profile.id}.json"
    try:
        _replace(file, encode(profile).encode())
    except OSError as error:
        if named is None:
            raise _no_state(error) from None
        raise UsageError(f"{file} cannot be written: {error}.") from None
    return file


def _no_state(error: OSError) -> SetupError:
    return SetupError(f"The profile cannot be kept: {error}.\nName a file with -o FILE, or set XDG_STATE_HOME.")


def _replace(file: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=file.resolve().parent, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as output:
            output.write(content)
        Path(temporary).chmod(0o644)  # a result to pass on, unlike what mkstemp is for
        Path(temporary).replace(file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
