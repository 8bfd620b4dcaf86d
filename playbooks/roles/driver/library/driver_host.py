#!/usr/bin/python
"""What a driver would be installed on: distribution, kernels, GPUs, and what is there of a driver."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import driver_packages, host_kernels
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: driver_host
short_description: Look at distribution, kernels, GPUs and installed driver of a host
options:
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

NVIDIA = "10DE"
GPU_CLASSES, SWITCH_CLASS = ("300", "302"), "680"  # as the kernel writes PCI_CLASS: 30200 for a 3D controller
MODULE = re.compile(r"(?:^|/)nvidia(?:-current|-tesla|-legacy)?(?:-open|-\d\w*)*\.ko(?:\.\w+)?:", re.MULTILINE)
META = re.compile(r"linux-image-([a-z][\w.-]*)$")  # linux-image-generic-hwe-24.04, and not linux-image-6.8.0-85-generic
MIB = 1 << 20


def distribution(root: Path) -> dict[str, str]:
    """Return id, version and codename as /etc/os-release has them."""
    lines = (root / "etc/os-release").read_text().splitlines()
    fields = {key: value.strip("\"'") for key, _, value in (line.partition("=") for line in lines)}
    names = {"id": "ID", "version": "VERSION_ID", "codename": "VERSION_CODENAME"}
    return {ours: fields.get(theirs, "") for ours, theirs in names.items()}


def kernels(root: Path) -> list[dict[str, Any]]:
    """Return the installed kernels, the oldest first: whether headers and an NVIDIA module are there for each."""
    trees = {release: root / "lib/modules" / release for release in host_kernels.installed(root)}
    return [
        {
            "release": release,
            "headers": (tree / "build/Makefile").exists(),
            "module": bool(MODULE.search((tree / "modules.dep").read_text(errors="replace"))),
        }
        for release, tree in trees.items()
    ]


def flavours(root: Path) -> list[str]:
    """Return the flavours of the kernel packages that follow new kernels: generic, generic-hwe-24.04, aws."""
    lists = (root / "var/lib/dpkg/info").glob("linux-image-*.list")
    return sorted(match[1] for match in (META.match(path.stem.partition(":")[0]) for path in lists) if match)


def devices(root: Path) -> list[dict[str, str]]:
    """Return NVIDIA's PCI devices: GPUs and NVSwitches."""
    found = []
    for file in sorted((root / "sys/bus/pci/devices").glob("*/uevent")):
        fields = dict(line.partition("=")[::2] for line in file.read_text().splitlines())
        vendor, _, device = fields.get("PCI_ID", "").upper().partition(":")
        if vendor == NVIDIA and fields.get("PCI_CLASS", "")[:3] in (*GPU_CLASSES, SWITCH_CLASS):
            kind = "switch" if fields["PCI_CLASS"].startswith(SWITCH_CLASS) else "gpu"
            row = {"kind": kind, "address": file.parent.name, "device": device, "driver": fields.get("DRIVER", "")}
            found.append(row)
    return found


def first_line(file: Path) -> str:
    """Return the first line of a file, "" where there is none."""
    return file.read_text().partition("\n")[0] if file.is_file() else ""


def loaded(root: Path) -> str:
    """Return the version of the module in memory, "" where none is."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+([\d.]+)", first_line(root / "proc/driver/nvidia/version"))
    return match[1] if match else first_line(root / "sys/module/nvidia/version")


def look(root: Path) -> dict[str, Any]:
    """Return everything."""
    found, running = devices(root), first_line(root / "proc/sys/kernel/osrelease")
    installed, packages = kernels(root), driver_packages.installed()
    return {
        "distribution": distribution(root),
        "machine": os.uname().machine,
        "guest": bool(re.search(r"^flags.*\bhypervisor\b", (root / "proc/cpuinfo").read_text(), re.MULTILINE)),
        "running": running,
        "kernels": installed,
        "flavours": flavours(root),
        "gpus": [one for one in found if one["kind"] == "gpu"],
        "switches": len([one for one in found if one["kind"] == "switch"]),
        "packages": packages,
        "version": driver_packages.version(packages),
        "runfile": (root / "usr/bin/nvidia-uninstall").exists(),
        "loaded": loaded(root),
        # A container has the machine's modules in memory and not on disk: nothing can be loaded from in there.
        "loadable": (root / "lib/modules" / os.uname().release / "modules.dep").exists(),
        # Ansible's apt cannot tell in a trial run what it would do without it; in a real one it installs it.
        "python_apt": importlib.util.find_spec("apt") is not None,
        "nouveau": (root / "sys/module/nouveau").is_dir(),
        "free_mib": {
            place: shutil.disk_usage(root / place.lstrip("/")).free // MIB for place in ("/boot", "/usr", "/var")
        },
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    try:
        module.exit_json(changed=False, **look(Path(module.params["root"])))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or 'a file'} cannot be read: {error.strerror}.")


if __name__ == "__main__":
    main()
