"""The edges of every command: words as typed, streams and an error in; streams that work, and a line about it, out."""

import contextlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence

from lpxdoctor.errors import DoctorError, UsageError

_PASSED_ON = ("--arg", "--try")  # what follows them is for the engine
_NO_VALUE = re.compile(r"(--[a-z0-9-]+)=")


def refuse_empty(argv: Sequence[str]) -> None:
    """Raise UsageError for an empty word: taken for none, `fix --yes -i "$HOSTS"` would fix this machine instead."""
    for before, word in zip(("", *argv), argv, strict=False):
        if word and (before in _PASSED_ON or not _NO_VALUE.fullmatch(word)):
            continue
        what = word.rstrip("=") or (f"The word after {before}" if before.startswith("-") else "A word")
        raise UsageError(f"{what} is empty: is a variable of the shell not set?\nGive a value, or leave it out.")


def open_streams() -> None:
    """Have all three streams where the caller closed one (`>&-`), and let no letter that one lacks end a command."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_document(text: str) -> None:
    """Print JSON or HTML, which is UTF-8 whatever the terminal's encoding is."""
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.buffer.write(text.encode())
    else:
        sys.stdout.write(text)


def drop_output() -> None:
    """Send what is still to be written nowhere: at its end the interpreter would try once more, and complain."""
    with contextlib.suppress(OSError, ValueError):  # a test's stream has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def told(error: OSError) -> str:
    """Tell what the system refused."""
    where = f"{error.filename}: " if error.filename else "the output cannot be written: "
    return f"{where}{error.strerror or error}.\nPut that right and type the same again."


def defect(error: Exception) -> str:
    """Tell an error that nothing foresaw in a line, and keep the rest of it in a file for a report."""
    from lpxdoctor import logs  # noqa: PLC0415 - hopefully never

    said = f"this is a defect of lpxdoctor: {type(error).__name__}: {error}\nPlease report it with what you typed"
    try:
        return f"{said} and with {logs.keep('defect', ''.join(traceback.format_exception(error)))}"
    except (DoctorError, OSError):
        return f"{said} and with this: {_place(error)}"


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"
