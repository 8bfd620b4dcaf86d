#!/usr/bin/python
"""What on this host waits for a reboot: notes of the roles, the flag of the distribution, modules in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible.module_utils import commands
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: reboot_reasons
short_description: Say why a host should be rebooted, if it should
options:
  note: {description: The file below /run in which roles leave their reasons., type: path, required: true}
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""


def lines(file: Path) -> list[str]:
    """Return the lines of a file, none where there is none."""
    return [line for line in file.read_text().splitlines() if line.strip()] if file.is_file() else []


def of_distribution(root: Path) -> list[str]:
    """Return what the distribution says: Debian and Ubuntu by a file, RHEL and its rebuilds by a command."""
    if (root / "run/reboot-required").exists():
        packages = sorted(set(lines(root / "run/reboot-required.pkgs")))
        return [f"packages ask for it: {', '.join(packages) or 'which is not said'}"]
    try:
        done = commands.run("needs-restarting", "-r")
    except FileNotFoundError:
        return []
    return ["needs-restarting -r says so"] if done.returncode == 1 and "Reboot is required" in done.stdout else []


def of_modules(root: Path) -> list[str]:
    """Return what is in memory and should not be: nouveau beside NVIDIA's module on disk, or another version."""
    running = lines(root / "proc/sys/kernel/osrelease")[0]
    tree = root / "lib/modules" / running
    files = [file for file in tree.rglob("nvidia*.ko*") if re.match(r"nvidia(-current)?\.ko", file.name)]
    if files and (root / "sys/module/nouveau").is_dir():
        return ["nouveau is loaded, and NVIDIA's module is on disk"]
    loaded = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", "\n".join(lines(root / "proc/driver/nvidia/version")))
    if not files or not loaded:
        return []
    there = commands.run("modinfo", "-F", "version", str(files[0]))
    version = there.stdout.strip()
    return [f"driver {loaded[1]} is loaded, {version} is on disk"] if version and version != loaded[1] else []


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "note": {"type": "path", "required": True},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    root = Path(given["root"])
    try:
        reasons = [*lines(root / given["note"].lstrip("/")), *of_distribution(root), *of_modules(root)]
    except OSError as error:
        module.fail_json(msg=f"Whether a reboot is needed is not known: {error.filename}: {error.strerror}.")
    module.exit_json(changed=False, reasons=list(dict.fromkeys(reasons)))


if __name__ == "__main__":
    main()
