#!/usr/bin/python
"""The NVIDIA Container Toolkit's config.toml: the ldconfig of this host in; a file that nvidia-ctk can read out."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from ansible.module_utils import dockerd
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: toolkit_config
short_description: Have nvidia-ctk repair the toolkit's config.toml where it cannot be read or names a missing ldconfig
options:
  path: {description: The file., type: path, required: true}
  ctk: {description: Where nvidia-ctk is., type: path, required: true}
  ldconfig: {description: The host's ldconfig., type: path, required: true}
author: lpxdoctor
"""

# "@" stands for the host's, and not the container's.
LDCONFIG = re.compile(r'^\s*ldconfig\s*=\s*"@?([^"]+)"', re.MULTILINE)


def faults(path: Path, ctk: str) -> tuple[str, str]:
    """Return why nvidia-ctk cannot read the file and which missing ldconfig it names, each empty where it is well."""
    if not path.exists():
        return "", ""
    status, said = dockerd.ask(ctk, "config", "--config-file", str(path))
    if status != 0:
        return said or f"nvidia-ctk ended with {status}", ""
    named = LDCONFIG.search(path.read_text(errors="replace"))
    return "", named[1] if named and not Path(named[1]).exists() else ""


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "ctk": {"type": "path", "required": True},
            "ldconfig": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    path, ctk = Path(module.params["path"]), module.params["ctk"]
    broken, missing = faults(path, ctk)
    if not broken and not missing:
        module.exit_json(changed=False, said=[])
    said = [f"it could not be read: {broken}"] if broken else [f"it named {missing}, which is not on this host"]
    if module.check_mode:
        module.exit_json(changed=True, said=said)
    backup = path.with_name(f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        shutil.copy2(path, backup)
    except OSError as error:
        module.fail_json(msg=f"{path} could not be kept aside, and is as it was: {error}")
    if broken:
        path.unlink()
        command = [ctk, "config", "default", "--output", str(path)]
    else:
        setting = f"nvidia-container-cli.ldconfig=@{module.params['ldconfig']}"
        command = [ctk, "config", "--config-file", str(path), "--set", setting, "--in-place"]
    status, answer = dockerd.ask(*command)
    left = faults(path, ctk)
    if status != 0 or any(left):
        backup.replace(path)
        module.fail_json(msg=f"{' '.join(command)} did not repair {path}, which is as it was:\n{answer or left}")
    module.exit_json(changed=True, said=said, backup=str(backup))


if __name__ == "__main__":
    main()
