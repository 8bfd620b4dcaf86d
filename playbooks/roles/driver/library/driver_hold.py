#!/usr/bin/python
"""The driver's packages, by their exact installed names, in; each held against automatic upgrades out."""

from __future__ import annotations

import shutil
from typing import Any

from ansible.module_utils import commands, driver_packages
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_hold
short_description: Hold the installed packages of the NVIDIA driver, with apt-mark or dnf's versionlock
options:
  hold: {description: Whether they are held or let go., type: bool, default: true}
author: lpxdoctor
"""


def command(names: list[str], packages: dict[str, Any], *, hold: bool) -> tuple[str, ...]:
    """Return what holds packages or lets them go."""
    if shutil.which("apt-mark"):
        return ("apt-mark", "hold" if hold else "unhold", *names)
    # A lock is of one version: name and version together.
    locked = [f"{name}-{packages[name]['version']}" if hold else name for name in names]
    return ("dnf", "-y", "versionlock", "add" if hold else "delete", *locked)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "hold": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    hold = module.params["hold"]
    try:
        packages = driver_packages.installed()
        names = [name for name in driver_packages.to_hold(packages) if packages[name]["held"] != hold]
        if names and not module.check_mode:
            argv = command(names, packages, hold=hold)
            done = commands.run(*argv)
            if done.returncode != 0:
                module.fail_json(
                    msg=f"{' '.join(argv[:3])} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}"
                )
    except OSError as error:
        module.fail_json(msg=f"The packages cannot be held: {error.filename}: {error.strerror}.")
    module.exit_json(changed=bool(names), packages=names)


if __name__ == "__main__":
    main()
