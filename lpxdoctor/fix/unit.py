"""Go on after a reboot of this machine: a systemd unit that runs `fix --resume` once, and the reboot itself."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from lpxdoctor.errors import SetupError
from lpxdoctor.state import state_dir

NAME = "lpxdoctor-fix.service"
UNITS = Path("/etc/systemd/system")
# Tells the resumed run that nobody reads what it prints, so that it keeps it.
UNATTENDED = "LPXDOCTOR_UNATTENDED"
_LIMIT_S = 60


def text() -> str:
    """Return the unit: it takes itself away before it begins, so that it runs once whatever becomes of it."""
    own = f"{UNITS / NAME} {UNITS / 'multi-user.target.wants' / NAME}"
    kept = {name: os.environ[name] for name in ("ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH") if name in os.environ}
    environment = {"HOME": str(Path.home()), "XDG_STATE_HOME": str(state_dir().parent), UNATTENDED: "1", **kept}
    return "\n".join(
        (
            "[Unit]",
            "Description=lpxdoctor fix goes on after the reboot",
            "After=multi-user.target network-online.target docker.service nvidia-persistenced.service",
            "Wants=network-online.target",
            "",
            "[Service]",
            "Type=oneshot",
            *(f'Environment="{name}={value}"' for name, value in environment.items()),
            f"ExecStartPre=/bin/rm -f {own}",
            f"ExecStart={shlex.join((sys.executable, '-m', 'lpxdoctor', 'fix', '--resume'))}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        )
    )


def install() -> None:
    """Write and enable the unit.

    Raises:
        SetupError: this machine has no systemd, or the unit cannot be written.
    """
    try:
        (UNITS / NAME).write_text(text(), encoding="utf-8")
    except OSError as error:
        raise SetupError(f"{UNITS / NAME} cannot be written: {error.strerror}.\n{_BY_HAND}") from None
    _systemctl("daemon-reload")
    _systemctl("enable", NAME)


def reboot() -> None:
    """Start this machine anew."""
    _systemctl("reboot")


_BY_HAND = "Reboot by hand, then type: lpxdoctor fix --resume"


def _systemctl(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ("systemctl", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"systemctl {' '.join(arguments)}: {error}.\n{_BY_HAND}") from None
    if done.returncode != 0:
        raise SetupError(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}\n{_BY_HAND}")
