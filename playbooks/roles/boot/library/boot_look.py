#!/usr/bin/python
"""What a boot chain is worked on: kernels, and who owns the NVIDIA GPUs now; nothing is changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import host_kernels
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: boot_look
short_description: Say which kernels are installed and which drivers own the NVIDIA GPUs
options:
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

NVIDIA = "10DE:"
GPU_CLASSES = ("300", "302")  # VGA and 3D controllers, as the kernel writes PCI_CLASS: 30200
GIVEN_AWAY = ("vfio-pci", "pci-stub", "xen-pciback")


def owners(root: Path) -> dict[str, str]:
    """Return the driver of each NVIDIA GPU, "" where none has it: {address: driver}."""
    found = {}
    for file in sorted((root / "sys/bus/pci/devices").glob("*/uevent")):
        fields = dict(line.partition("=")[::2] for line in file.read_text().splitlines())
        if fields.get("PCI_ID", "").upper().startswith(NVIDIA) and fields.get("PCI_CLASS", "")[:3] in GPU_CLASSES:
            found[file.parent.name] = fields.get("DRIVER", "")
    return found


def look(root: Path) -> dict[str, Any]:
    """Return everything."""
    running = (root / "proc/sys/kernel/osrelease").read_text().strip()
    installed, owned = host_kernels.installed(root), owners(root)
    return {
        "running": running,
        "kernels": installed,
        "running_kernel_gone": bool(installed) and not (root / "lib/modules" / running).is_dir(),
        "owners": owned,
        "given_away": bool(owned) and all(driver in GIVEN_AWAY for driver in owned.values()),
        "nouveau_idle": (root / "sys/module/nouveau").is_dir() and "nouveau" not in owned.values(),
        "dracut": shutil.which("dracut") is not None,
        "container": (root / "run/systemd/container").exists() or (root / ".dockerenv").exists(),
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    module.exit_json(changed=False, **look(Path(module.params["root"])))


if __name__ == "__main__":
    main()
