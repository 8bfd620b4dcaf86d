#!/usr/bin/python
"""The driver's packages on this host in; those whose files somebody took away or overwrote, as NAME=VERSION, out."""

from __future__ import annotations

import re
import shutil

from ansible.module_utils import commands, driver_packages
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_damaged
short_description: Find packages of the NVIDIA driver whose files are not the ones that they brought
description:
  - Settings do not count, for they are there to be changed.
options: {}
author: lpxdoctor
"""

# dpkg and rpm write alike: "missing     /usr/bin/nvidia-smi", "??5??????   /usr/lib/...", with a "c" before settings.
DAMAGE = re.compile(r"^(?:missing|..5\S*)\s+(?!c )\S", re.MULTILINE)


def is_damaged(name: str, *, apt: bool) -> bool:
    """Tell whether a package's files are missing or other ones; rpm ends with 1 where it finds any."""
    argv = ("dpkg", "--verify", name) if apt else ("rpm", "--verify", "--nodeps", name)
    return bool(DAMAGE.search(commands.run(*argv).stdout))


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    apt = shutil.which("dpkg") is not None
    try:
        packages = driver_packages.installed()
        names = [name for name in packages if is_damaged(name, apt=apt)]
    except OSError as error:
        module.fail_json(msg=f"The driver's packages cannot be verified: {error.filename}: {error.strerror}.")
    join = "=" if apt else "-"
    module.exit_json(changed=False, packages=[f"{name}{join}{packages[name]['version']}" for name in names])


if __name__ == "__main__":
    main()
