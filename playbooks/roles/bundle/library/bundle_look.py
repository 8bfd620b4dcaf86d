#!/usr/bin/python
"""Whether a host can take a bundle: what the bundle is for in; a refusal, or whether it is there already, out."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.bundle_archive import is_unpacked

DOCUMENTATION = r"""
module: bundle_look
short_description: Refuse a host that a bundle is not for, or that has no room for it
options:
  path: {description: Where the bundle is to be unpacked., type: path, required: true}
  manifest_sha256: {description: Of the manifest that is wanted there., type: str, required: true}
  target: {description: The system that it is for, as its manifest has it., type: dict, required: true}
  archive_bytes: {description: Size of the archive that is copied; 0 for none., type: int, required: true}
  unpacked_bytes: {description: Size of its files., type: int, required: true}
author: lpxdoctor
"""

SPARE = 256 << 20  # bytes that must stay free: apt and journald write too


def os_release(text: str) -> dict[str, str]:
    """Return the settings of an os-release file (os-release(5): shell syntax, quotes optional)."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def other_system(target: dict[str, Any], release: dict[str, str], machine: str) -> str | None:
    """Return why the bundle is not for this system, None where it is."""
    wanted = (target["distribution"], target["version"], target["machine"])
    found = (release.get("ID", "?"), release.get("VERSION_ID", "?"), machine)
    # A bundle for Rocky 9 is for 9.6 too.
    if (found[0], machine) == (wanted[0], wanted[2]) and f"{found[1]}.".startswith(f"{wanted[1]}."):
        return None
    version = found[1].replace(".", "") if found[0] == "ubuntu" else found[1].partition(".")[0]
    return (
        f"The bundle is for {' '.join(wanted)}, and this host is {' '.join(found)}. Nothing was changed.\n"
        f"Make one for it: lpxdoctor bundle create --for {found[0]}{version}{'/arm64' if machine == 'aarch64' else ''}"
    )


def no_room(path: Path, archive_bytes: int, unpacked_bytes: int) -> str | None:
    """Return what is missing, None where there is room for the archive beside its files."""
    place = next(parent for parent in path.parents if parent.exists())
    home = Path.home()  # the archive comes through ~/.ansible/tmp
    needs = {place: archive_bytes + unpacked_bytes + SPARE}
    if home.exists() and home.stat().st_dev != place.stat().st_dev:
        needs[home] = archive_bytes
    for where, needed in needs.items():
        room = os.statvfs(where)
        free = room.f_bavail * room.f_frsize
        if free < needed:
            return (
                f"The bundle needs {needed >> 20} MiB below {where}, where {free >> 20} MiB are free. "
                "Nothing was changed.\nMake room, or name another place with the variable bundle_directory."
            )
    return None


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "manifest_sha256": {"type": "str", "required": True},
            "target": {"type": "dict", "required": True},
            "archive_bytes": {"type": "int", "required": True},
            "unpacked_bytes": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    path = Path(given["path"])
    if os.geteuid() != 0:
        module.fail_json(msg="Installing needs root, which sudo did not give. Nothing was changed.")
    release = os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    refused = other_system(given["target"], release, platform.machine())
    unpacked = refused is None and is_unpacked(path, given["manifest_sha256"])
    if refused is None and not unpacked:
        refused = no_room(path, given["archive_bytes"], given["unpacked_bytes"])
    if refused:
        module.fail_json(msg=refused)
    module.exit_json(unpacked=unpacked)


if __name__ == "__main__":
    main()
