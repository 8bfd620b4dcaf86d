#!/usr/bin/python
"""Whether an engine can read a model: a directory and a user in; nothing, or what is wrong with it, out."""

from __future__ import annotations

import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: engine_model
short_description: Fail when a directory is no model, or not readable by the engine's user
options:
  path: {description: The model's directory., type: path, required: true}
  uid: {description: The engine's user id., type: int, required: true}
  gid: {description: The engine's group id., type: int, required: true}
author: lpxdoctor
"""


def readable(file: Path, uid: int, gid: int) -> bool:
    """Tell whether the permissions let a user read it (and enter it, for a directory); ACLs are not looked at."""
    found = file.stat()
    needed = 0o5 if file.is_dir() else 0o4
    if found.st_uid == uid:
        return stat.S_IMODE(found.st_mode) >> 6 & needed == needed
    if found.st_gid == gid:
        return stat.S_IMODE(found.st_mode) >> 3 & needed == needed
    return stat.S_IMODE(found.st_mode) & needed == needed


def trouble(model: Path, uid: int, gid: int) -> str | None:
    """Return what is wrong with the model, None when nothing is."""
    where = (
        "Put the model's files on the host (config.json, tokenizer, weights), "
        "or name the directory they are in with --model."
    )
    if not model.is_dir():
        return f"The model is not there: {model} is no directory.\n{where}"
    if not (model / "config.json").is_file():
        return f"The model is not there: {model} has no config.json.\n{where}"
    for file in (model, *sorted(model.iterdir())):
        if not readable(file, uid, gid):
            return f"The engine runs as user {uid}:{gid} and may not read {file}.\nOpen it: chmod -R a+rX {model}"
    return None


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "uid": {"type": "int", "required": True},
            "gid": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        found = trouble(Path(given["path"]), given["uid"], given["gid"])
    except OSError as error:
        found = f"The model cannot be looked at: {error}.\nDeploy as a user who may read {given['path']}."
    if found is not None:
        module.fail_json(msg=found)
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
