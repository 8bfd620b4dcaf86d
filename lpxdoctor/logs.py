"""What a run said, kept for later: a name and a text in, a private file out."""

import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from lpxdoctor.errors import SetupError
from lpxdoctor.state import made

KEPT = 50


def keep(name: str, text: str) -> Path:
    """Write a log with mode 0600 and return its file, named by the time (UTC) and what it is of; old ones go.

    It lies below the state directory, or with other temporary files where that cannot be written: what went wrong is to
    be told all the same.
    """
    try:
        directory = made("logs")
    except SetupError:
        directory = Path(tempfile.mkdtemp(prefix="lpxdoctor-logs-"))
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    for old in sorted(directory.glob("*.log"))[: 1 - KEPT]:
        old.unlink(missing_ok=True)
    descriptor, path = tempfile.mkstemp(dir=directory, prefix=f"{stamp}-{name}-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(path)
