#!/usr/bin/python
"""Where the loader and everybody's environment look for libcuda in; stand-ins and cuda-compat left out, out."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils import commands, text_file
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_loader
short_description: Take directories that hide the driver's libcuda out of ld.so.conf and of everybody's environment
options:
  root: {description: Where the host's files are., type: path, default: /}
  ldconfig: {description: Whether to run ldconfig after a change., type: bool, default: true}
author: lpxdoctor
"""

# The CUDA toolkit's stand-in for linking, and the library of cuda-compat for containers with an older driver below.
HIDING = re.compile(r"/\S*?(?:/stubs|cuda[\w.-]*/compat)/?$")
MARK = "# taken out by lpxdoctor: "
LOADER = ("etc/ld.so.conf", "etc/ld.so.conf.d/*.conf")
ENVIRONMENT = ("etc/environment", "etc/environment.d/*.conf", "etc/profile.d/*.sh", "etc/profile", "etc/bash.bashrc")
PATHS = re.compile(r"(LD_LIBRARY_PATH=)([\"']?)([^\"'\s]*)(\2)")


def loader_text(text: str) -> str:
    """Return a file of ld.so.conf without the directories."""
    return "".join(MARK + line if HIDING.search(line.strip()) else line for line in text.splitlines(keepends=True))


def environment_text(text: str) -> str:
    """Return a file of settings whose LD_LIBRARY_PATH does not name the directories."""

    def without(match: re.Match[str]) -> str:
        kept = [part for part in match[3].split(":") if not HIDING.search(part)]
        return match[0] if len(kept) == len(match[3].split(":")) else f"{match[1]}{match[2]}{':'.join(kept)}{match[2]}"

    return PATHS.sub(without, text)


def wanted(root: Path) -> dict[Path, str]:
    """Return what has to be written: {path: text}."""
    found: dict[Path, str] = {}
    for patterns, change in ((LOADER, loader_text), (ENVIRONMENT, environment_text)):
        for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
            text = text_file.read(path)
            after = change(text)
            if after != text:
                found[path] = after
    return found


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "ldconfig": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        edits = wanted(Path(module.params["root"]))
        backups = []
        for path, text in edits.items() if not module.check_mode else ():
            backups.append(module.backup_local(str(path)))
            text_file.write(path, text)
        if backups and module.params["ldconfig"]:
            commands.run("ldconfig")
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be changed: {error.strerror}.")
    module.exit_json(changed=bool(edits), files=sorted(map(str, edits)), backups=backups)


if __name__ == "__main__":
    main()
