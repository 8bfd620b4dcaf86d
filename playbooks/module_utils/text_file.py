"""A file that people and programs write in: its text, in any encoding, out; another text in its place, whole, in."""

# Runs on the managed host: the standard library of Python 3.9 alone.
from __future__ import annotations

import os
import shutil
from pathlib import Path


def read(path: Path) -> str:
    """Return a file's text, of any encoding and with any line ends, so that it can be written as it was."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def write(path: Path, text: str) -> None:
    """Replace a file that exists, or what a link leads to, in one step; owner, mode and SELinux's label stay."""
    target = path.resolve()
    new, before = target.with_name(target.name + ".lpxdoctor-new"), target.stat()
    try:
        new.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.chown(new, before.st_uid, before.st_gid)
        shutil.copystat(target, new)
        os.utime(new)  # it is of now
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def printable(text: str) -> str:
    """Return a text less what is no UTF-8, for an answer in JSON."""
    return text.encode("utf-8", "replace").decode()
