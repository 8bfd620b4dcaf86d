"""Run a command on the managed host within a time limit: its words in; its exit status and what it said out."""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import errno
import os
import subprocess

LIMIT_S = 120.0


def run(
    *argv: str, limit_s: float = LIMIT_S, directory: os.PathLike[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, whatever its exit status, with its output in English.

    Raises:
        OSError: the command is not there, or (TimeoutError) did not end; filename is the command, strerror why.
    """
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            cwd=directory,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        why = f"it did not end within {limit_s:.0f} s; see what it waits for, and run this again"
        raise TimeoutError(errno.ETIMEDOUT, why, " ".join(argv)) from None
