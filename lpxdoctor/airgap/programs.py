"""Run one program of this machine: argv in, what it wrote out, or one error that says what it said."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

from lpxdoctor.errors import SetupError

LIMIT_S = 3600.0


def said_by(
    argv: Sequence[str],
    what: str,
    *,
    env: Mapping[str, str] = MappingProxyType({}),
    to: Path | None = None,
) -> str:
    """Return a program's standard output, "" where it goes to a file.

    Raises:
        SetupError: it is not here, failed, or did not end; the message begins with what could not be done.
    """
    settings = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **env}
    try:
        with to.open("wb") if to else nullcontext(subprocess.PIPE) as out:
            done = subprocess.run(
                argv,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=LIMIT_S,
                check=False,
            )
    except FileNotFoundError as error:
        raise SetupError(
            f"{what}: there is no {argv[0]} on this machine ({error}).\nInstall it, and run this again."
        ) from None
    except OSError as error:
        raise SetupError(f"{what}: {error.strerror or error}.") from error
    except subprocess.TimeoutExpired:
        raise SetupError(f"{what}: {argv[0]} did not end within {LIMIT_S:.0f} s.") from None
    if done.returncode:
        raise SetupError(f"{what}: {argv[0]} ended with {done.returncode}:\n{_last_lines(done)}")
    return "" if to else done.stdout.decode(errors="replace")


def _last_lines(done: "subprocess.CompletedProcess[bytes]") -> str:
    text = (done.stdout or b"").decode(errors="replace") + (done.stderr or b"").decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("E:", "ERROR"))] or lines[-6:]
    return "\n".join(f"  {line}" for line in told[-12:]) or "  it said nothing"
