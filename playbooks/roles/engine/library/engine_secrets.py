#!/usr/bin/python
"""What an engine keeps on its host: a directory and secrets in; private files, and an API key made once, out."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: engine_secrets
short_description: Keep an engine's secrets in files with mode 0600, one for each variable
description:
  - VLLM_API_KEY is generated on the host when there is none; it never travels.
  - Neither the answer nor a difference contains a secret.
options:
  path: {description: The engine's directory., type: path, required: true}
  uid: {description: The owner's id., type: int, required: true}
  gid: {description: The group's id., type: int, required: true}
  values: {description: Further secrets., type: dict, default: {}}
author: lpxdoctor
"""

KEY = "VLLM_API_KEY"
PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600


def differs(path: Path, mode: int, uid: int, gid: int) -> bool:
    """Tell whether a path is missing, or has another mode or owner."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    return (found.st_mode & 0o7777, found.st_uid, found.st_gid) != (mode, uid, gid)


def write(file: Path, content: bytes, uid: int, gid: int) -> None:
    """Replace a file in one step; nobody else can read it at any moment."""
    descriptor, temporary = tempfile.mkstemp(dir=str(file.parent), prefix=".")  # mode 0600 by itself
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        os.fchown(opened.fileno(), uid, gid)
    Path(temporary).replace(file)


def plan(given: dict[str, Any]) -> tuple[list[Path], dict[str, bytes], list[Path]]:
    """Return the directories to make or mend, the files to write and those whose mode or owner is to be mended."""
    home, uid, gid = Path(given["path"]), given["uid"], given["gid"]
    kept = home / "secrets"
    directories = [one for one in (home, kept, home / "cache") if differs(one, PRIVATE_DIRECTORY, uid, gid)]
    wanted = {name: str(value).encode() for name, value in given["values"].items() if name != KEY}
    files = {name: value for name, value in wanted.items() if not same(kept / name, value)}
    if not (kept / KEY).exists():
        files[KEY] = secrets.token_urlsafe(32).encode()
    others = [name for name in (KEY, *wanted) if name not in files]
    return directories, files, [kept / name for name in others if differs(kept / name, PRIVATE_FILE, uid, gid)]


def same(file: Path, content: bytes) -> bool:
    """Tell whether a file has this content."""
    try:
        return file.read_bytes() == content
    except FileNotFoundError:
        return False


def apply(home: Path, uid: int, gid: int, directories: list[Path], files: dict[str, bytes], loose: list[Path]) -> None:
    """Do what plan returned."""
    for directory in directories:
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        directory.chmod(PRIVATE_DIRECTORY)
        os.chown(str(directory), uid, gid)
    for name, content in files.items():
        write(home / "secrets" / name, content, uid, gid)
    for file in loose:
        os.chown(str(file), uid, gid)
        file.chmod(PRIVATE_FILE)


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "uid": {"type": "int", "required": True},
            "gid": {"type": "int", "required": True},
            "values": {"type": "dict", "default": {}, "no_log": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        directories, files, loose = plan(given)
        if not module.check_mode:
            apply(Path(given["path"]), given["uid"], given["gid"], directories, files, loose)
    except OSError as error:
        module.fail_json(
            msg=f"The engine's files could not be written: {error}.\n"
            "Deploy as a user who may, or set engine_directory to a directory that can be written."
        )
    changed = sorted(
        {*map(str, directories), *(str(Path(given["path"], "secrets", name)) for name in files), *map(str, loose)}
    )
    module.exit_json(
        changed=bool(changed),
        new_key=KEY in files,
        secrets_changed=bool(files),
        diff={"before": "", "after": "".join(f"{path}\n" for path in changed)},
    )


if __name__ == "__main__":
    main()
