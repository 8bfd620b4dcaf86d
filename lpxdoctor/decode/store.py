"""A profile in, its file out, whole or not at all; and what was typed to mean one in, that profile out."""

import re
from pathlib import Path

from lpxdoctor.decode.profile import Profile, decode, encode
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.files import check_writable, is_there, write_whole
from lpxdoctor.state import records, state_dir

_ID = re.compile(r"[0-9a-f]{2,6}")
_SHOWN = 5


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
        check_writable(named)
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
        write_whole(file, encode(profile).encode(), mode=0o644)  # a result to pass on
    except OSError as error:
        if named is None:
            raise _no_state(error) from None
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    return file


def find(typed: str) -> Profile:
    """Return the profile that is meant: a file, `last`, the beginning of an id, or the newest with that --name.

    Raises:
        UsageError: there is none, there are several, or it cannot be read; the message says which there are.
        SetupError: the directory of those that are kept cannot be read.
    """
    if typed == "last":
        kept = _kept()
        if not kept:
            raise UsageError(f"No baseline is kept in {directory()} yet: lpxdoctor baseline makes one.")
        return _read(kept[-1])
    if is_there(typed) and Path(typed).is_file():
        return _read(Path(typed))
    if not _ID.fullmatch(typed):
        return _named(typed)
    found = [file for file in _kept() if file.stem.rpartition("-")[2].startswith(typed)]
    if len(found) > 1:
        listed = "\n".join(f"  {_told(_read(file))}" for file in found)
        raise UsageError(f"{len(found)} baselines begin with {typed}; type more of the one that is meant:\n{listed}")
    return _read(found[0]) if found else _named(typed)


def _named(name: str) -> Profile:
    """Return the newest profile of a name, as of a branch."""
    broken = 0
    known: list[Profile] = []
    for file in reversed(_kept()):
        try:
            profile = _read(file)
        except UsageError:
            broken += 1
            continue
        if profile.name == name:
            return profile
        known.append(profile)
    newest = "".join(f"\n  {_told(profile)}" for profile in known[:_SHOWN])
    there = f"The newest kept in {directory()}:{newest}" if known else f"None is kept in {directory()} yet."
    unread = f"\n{broken} files there cannot be read as baselines." if broken else ""
    raise UsageError(f"No baseline is meant by {name!r}: no file, id or --name is so.\n{there}{unread}")


def _kept() -> tuple[Path, ...]:
    """Return the files of all profiles kept, oldest first: their names begin with the time."""
    return records(directory().name)


def _read(file: Path) -> Profile:
    try:
        return decode(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None


def _told(profile: Profile) -> str:
    named = f" {profile.name}" if profile.name else ""
    return f"{profile.id}{named}  {profile.started}  {profile.deployment or profile.target}  {profile.model}"


def _no_state(error: OSError) -> SetupError:
    return SetupError(
        f"The profile cannot be kept in {directory()}: {error.strerror}.\n"
        "Name a file with -o FILE, or set XDG_STATE_HOME."
    )
