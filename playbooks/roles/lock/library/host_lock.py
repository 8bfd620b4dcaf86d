#!/usr/bin/python
"""A lock on this host: who wants it in; that he has it, or who has it since when, out."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: host_lock
short_description: Take or leave the lock that lets one run at a time change a host
description:
  - Its action plugin adds the holder, which is the run on the control node, and knows whether a former one still lives.
options:
  path: {description: The lock's file., type: path, required: true}
  limit_s: {description: Seconds after which a lock of another control node counts no more., type: int, required: true}
  state: {description: Whether the lock is taken or left., type: str, choices: [held, free], required: true}
  holder: {description: The run; added by the action plugin., type: dict, required: false}
  dead: {description: A holder that is known to be dead; added by the action plugin., type: dict, required: false}
author: lpxdoctor
"""

Holder = dict[str, Any]


def same(one: Holder | None, other: Holder | None) -> bool:
    """Tell whether two holders are one run."""
    return bool(one and other) and (one or {}).get("run") == (other or {}).get("run")


def held_by(file: Any) -> Holder | None:
    """Return who has the lock, None for nobody; a file that is cut off is nobody's."""
    try:
        holder = json.loads(file.read() or "null")
    except ValueError:
        return None
    return holder if isinstance(holder, dict) and "run" in holder else None


def take(given: dict[str, Any]) -> Holder | None:
    """Take the lock, or leave it, and return who else has it."""
    path, me = Path(given["path"]), given["holder"]
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # for the moment of looking and writing
        now = held_by(file)
        expired = now is not None and now["node"] != me["node"] and time.time() - now["since_s"] > given["limit_s"]
        if now and not same(now, me) and not same(now, given["dead"]) and not expired:
            return now if given["state"] == "held" else None
        file.seek(0)
        file.truncate()
        if given["state"] == "held":
            json.dump({**me, "since_s": time.time()}, file)
    return None


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "limit_s": {"type": "int", "required": True},
            "state": {"type": "str", "choices": ["held", "free"], "required": True},
            "holder": {"type": "dict", "required": False},
            "dead": {"type": "dict", "required": False},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, other=None)
    try:
        other = take(module.params)
    except PermissionError as error:
        module.fail_json(msg=f"{error}: connect as root, or set ansible_become: true in the inventory.")
    except OSError as error:
        module.fail_json(msg=f"The lock could not be taken: {error}. Nothing was changed.")
    # Not counted as a change: nothing of the host is another for it.
    module.exit_json(changed=False, other=other)


if __name__ == "__main__":
    main()
