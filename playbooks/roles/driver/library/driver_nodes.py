#!/usr/bin/python
"""The driver's device files and the kernel's numbers in; stale files gone and missing ones made out."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_nodes
short_description: Make /dev/nvidia* what the loaded modules say
options:
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

CONTROL_MINOR = 255
EVERYBODY = 0o666


def wanted(root: Path) -> dict[str, tuple[int, int]]:
    """Return {name below /dev: (major, minor)} of what the loaded modules serve."""
    devices = root / "proc/devices"
    lines = devices.read_text().partition("Block devices")[0].splitlines() if devices.is_file() else []
    majors = {
        name: int(number) for number, _, name in (line.strip().partition(" ") for line in lines) if number.isdigit()
    }
    main = majors.get("nvidia-frontend", majors.get("nvidia"))
    found: dict[str, tuple[int, int]] = {}
    if main is not None:
        found["nvidiactl"] = (main, CONTROL_MINOR)
        for file in (root / "proc/driver/nvidia/gpus").glob("*/information"):
            minor = re.search(r"Device Minor:\s*(\d+)", file.read_text())
            if minor:
                found[f"nvidia{minor[1]}"] = (main, int(minor[1]))
    if "nvidia-uvm" in majors:
        found["nvidia-uvm"] = (majors["nvidia-uvm"], 0)
        found["nvidia-uvm-tools"] = (majors["nvidia-uvm"], 1)
    return found


def numbers(path: Path) -> tuple[int, int] | None:
    """Return a device file's numbers, None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else (-1, -1)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    root, made = Path(module.params["root"]), []
    try:
        for name, (major, minor) in sorted(wanted(root).items()):
            path = root / "dev" / name
            there = numbers(path)
            if there == (major, minor):
                continue
            made.append(str(path))
            if module.check_mode:
                continue
            if there is not None:
                path.unlink()
            os.mknod(path, stat.S_IFCHR | EVERYBODY, os.makedev(major, minor))
            path.chmod(EVERYBODY)
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be made: {error.strerror}.")
    module.exit_json(changed=bool(made), made=made)


if __name__ == "__main__":
    main()
