#!/usr/bin/python
"""The NVIDIA modules that DKMS holds in; one built for every installed kernel, or the compiler's own words, out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import commands, host_kernels
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_dkms
short_description: Have DKMS build its NVIDIA module for each installed kernel that has headers and lacks it
options:
  running: {description: "Release of the running kernel, which must get a module.", type: str, required: true}
  rebuild: {description: Whether to build anew what is built already., type: bool, default: false}
  root: {description: "Where the host's files are, for reading.", type: path, default: /}
author: lpxdoctor
"""

SOURCE = re.compile(r"nvidia(?:-(?:srv|open|current|tesla|legacy)[\w.-]*)?")
TELLING = re.compile(
    r"\berror\b|No space left|No such file|unrecognized|kernel was built by|You are using", re.IGNORECASE
)
LIMIT_S = 1800
NEEDED_MIB = 1024  # sources, objects and the module of one build, for a moment
SHOWN = 4


class Failed(Exception):  # noqa: N818 - it is an answer
    """A module could not be built; the message says for which kernel and why."""


def sources(root: Path) -> list[tuple[str, str]]:
    """Return (name, version) of what DKMS can build, the newest version of each name."""
    found: dict[str, str] = {}
    for path in sorted(
        (root / "var/lib/dkms").glob("*/*/source"), key=lambda path: host_kernels.natural(path.parent.name)
    ):
        if SOURCE.fullmatch(path.parent.parent.name) and path.exists():
            found[path.parent.parent.name] = path.parent.name
    return sorted(found.items())


def kernels(root: Path) -> list[str]:
    """Return the installed kernels that a module can be built for, the oldest first."""
    bootable = {path.name.partition("-")[2] for path in (root / "boot").glob("vmlinuz-*")}
    having = {path.parent.parent.name for path in (root / "lib/modules").glob("*/build/Makefile")}
    return sorted(bootable & having, key=host_kernels.natural)


def built(root: Path, name: str, version: str, release: str) -> bool:
    """Tell whether the kernel's own tree has this build: what DKMS keeps for itself is not what modprobe loads."""
    kept = list((root / "var/lib/dkms" / name / version / release).glob("*/module/*.ko*"))
    there = {file.name.partition(".ko")[0] for file in (root / "lib/modules" / release).rglob("nvidia*.ko*")}
    return bool(kept) and all(file.name.partition(".ko")[0] in there for file in kept)


def build(root: Path, name: str, version: str, release: str) -> None:
    """Build and install one."""
    free = shutil.disk_usage(root / "var").free >> 20
    if free < NEEDED_MIB:
        raise Failed(f"There are {free} MiB free on /var, and a build of {name} takes {NEEDED_MIB}: make room there.")
    argv = ("dkms", "install", "--force", "-m", name, "-v", version, "-k", release)
    done = commands.run(*argv, limit_s=LIMIT_S)
    if done.returncode != 0 or not built(root, name, version, release):
        log = root / "var/lib/dkms" / name / version / "build/make.log"
        lines = (
            log.read_text(errors="replace").splitlines() if log.is_file() else (done.stdout + done.stderr).splitlines()
        )
        said = [line.strip()[:200] for line in lines if TELLING.search(line)] or [line.strip() for line in lines]
        raise Failed(
            f"DKMS could not build {name} {version} for kernel {release}:\n"
            + "\n".join(said[:SHOWN])
            + f"\nAll of it: {log}. For another compiler install the gcc that it names; for a kernel newer than the "
            "driver take a newer release of the branch, or start the older kernel."
        )


def bring_up_to_date(root: Path, running: str, *, rebuild: bool, check: bool) -> tuple[list[str], list[str]]:
    """Build what is missing; return what was built, and why old kernels, which do not count, go without."""
    done, left = [], []
    releases = kernels(root)
    for name, version in sources(root):
        for release in releases:
            if built(root, name, version, release) and not rebuild:
                continue
            if check:
                done.append(f"{name} {version} for {release}")
                continue
            if rebuild:
                commands.run("dkms", "unbuild", "-m", name, "-v", version, "-k", release)
            try:
                build(root, name, version, release)
                done.append(f"{name} {version} for {release}")
            except Failed as failed:
                if release in (running, releases[-1]):
                    raise
                left.append(str(failed))
    return done, left


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "running": {"type": "str", "required": True},
            "rebuild": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    try:
        done, left = bring_up_to_date(
            Path(given["root"]), given["running"], rebuild=given["rebuild"], check=module.check_mode
        )
    except Failed as failed:
        module.fail_json(msg=str(failed))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}.")
    module.exit_json(changed=bool(done), built=done, left=left)


if __name__ == "__main__":
    main()
