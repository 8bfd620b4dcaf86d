#!/usr/bin/python
"""Secure Boot and the NVIDIA modules' signatures; what is missing until the firmware trusts them, out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import commands
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: boot_signing
short_description: Say whether Secure Boot would refuse an NVIDIA module that DKMS signed, and which key to enrol
options:
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

# Ubuntu's shim-signed, then DKMS's own place: the first that exists signs what DKMS builds.
KEYS = ("var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub")


def secure_boot(root: Path) -> bool:
    """Tell whether the firmware has Secure Boot on: the byte behind the variable's four of attributes."""
    values = [file.read_bytes() for file in (root / "sys/firmware/efi/efivars").glob("SecureBoot-*")]
    return any(value[4:5] == b"\x01" for value in values)


def dkms_builds(root: Path) -> bool:
    """Tell whether DKMS holds an NVIDIA module: packages of signed modules leave nothing there."""
    return any((root / "var/lib/dkms").glob("nvidia*/*/source"))


def key(root: Path) -> str:
    """Return the key that DKMS signs with, "" where it has none yet."""
    return next((str(root / path) for path in KEYS if (root / path).is_file()), "")


def key_state(path: str) -> str:
    """Return "enrolled", "waiting" for the console at the next boot, or "unknown" to the firmware."""
    done = commands.run("mokutil", "--test-key", path)
    said = (done.stdout + done.stderr).lower()
    if "enrollment request" in said:
        return "waiting"
    return "enrolled" if "already enrolled" in said else "unknown"


def look(root: Path) -> dict[str, Any]:
    """Return everything; the key's state is asked only where it matters."""
    needed = secure_boot(root) and dkms_builds(root)
    path = key(root)
    tool = shutil.which("mokutil") is not None
    return {
        "secure_boot": secure_boot(root),
        "needed": needed,
        "key": path,
        "state": key_state(path) if needed and path and tool else "unknown",
        "mokutil": tool,
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    try:
        seen = look(Path(module.params["root"]))
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be read: {error.strerror}.")
    module.exit_json(changed=False, **seen)


if __name__ == "__main__":
    main()
