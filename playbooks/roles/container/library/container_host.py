#!/usr/bin/python
"""What this host has of Docker and of the NVIDIA Container Toolkit: names of packages in, all as it is now out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import dockerd, json_text
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: container_host
short_description: Look at Docker and the NVIDIA Container Toolkit on a host, changing nothing
options:
  packages: {description: Packages whose versions are asked for., type: list, elements: str, required: true}
  settings: {description: Docker's daemon.json., type: path, required: true}
author: lpxdoctor
"""

TOOLKIT = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-container-cli")
MOST_CHARACTERS = 1_000_000  # of eight GPUs it has a tenth of that
PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"  # dockerd's under systemd
SNAP = Path("/snap/bin/docker")


def dpkg(names: list[str]) -> dict[str, str]:
    """Return {name: version} of those of dpkg's packages that are installed."""
    _, said = dockerd.ask(
        "dpkg-query", "--show", "--showformat", "${Package}\t${db:Status-Status}\t${Version}\n", *names
    )
    rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
    return {name: version for name, status, version in rows if status == "installed"}


def rpm(names: list[str]) -> dict[str, str]:
    """Return {name: version-release} of those of rpm's packages that are installed."""
    _, said = dockerd.ask("rpm", "--query", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n", *names)
    return dict(line.split("\t") for line in said.splitlines() if line.count("\t") == 1)


def settings(file: Path) -> dict[str, Any]:
    """Return what daemon.json holds; {} for one that cannot be read, which docker_settings sees to."""
    try:
        found: dict[str, Any] = json_text.parsed(file.read_text())
    except (OSError, ValueError):
        return {}
    return found


def cdi_refused(file: dict[str, Any]) -> bool:
    """Tell whether daemon.json switches CDI off."""
    features = file.get("features")
    return isinstance(features, dict) and features.get("cdi") is False


def gone(file: dict[str, Any]) -> list[str]:
    """Return the runtimes of NVIDIA's in daemon.json whose program is not on this host."""
    runtimes = file.get("runtimes")
    named = runtimes.items() if isinstance(runtimes, dict) else ()
    programs = {name: str(each.get("path", "")) for name, each in named if isinstance(each, dict)}
    return [name for name, path in programs.items() if "nvidia" in path and not shutil.which(path, path=PATH)]


def specs() -> dict[str, str]:
    """Return {path: text} of the CDI specifications; only the control node has what reads YAML."""
    found = (path for directory in ("/etc/cdi", "/var/run/cdi") for path in sorted(Path(directory).glob("*")))
    return {
        str(path): path.read_text(errors="replace")[:MOST_CHARACTERS]
        for path in found
        if path.suffix in (".json", ".yaml", ".yml") and path.is_file()
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "settings": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    names, file = module.params["packages"], settings(Path(module.params["settings"]))
    programs = {name: Path("/usr/bin", name) for name in TOOLKIT}
    module.exit_json(
        changed=False,
        dockerd=dockerd.program() or "",
        docker_version=dockerd.version(),
        cdi_refused=cdi_refused(file),
        runtimes_gone=gone(file),
        default_runtime=str(file.get("default-runtime", "")),
        lists=sorted(path.name for path in Path("/etc/apt/sources.list.d").glob("*.list")),
        snap=SNAP.exists(),
        packages=dpkg(names) if Path("/usr/bin/dpkg-query").exists() else rpm(names),
        programs={name: str(path) for name, path in programs.items() if os.access(path, os.X_OK)},
        # The toolkit's generator asks the loaded driver; without one it has nothing to write down.
        driver=Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists(),
        refresh=dockerd.ask("systemctl", "cat", "--no-pager", "nvidia-cdi-refresh.service")[0] == 0,
        specs=specs(),
        links=any(Path("/dev/char").glob("195:*")),
        ldconfig="/sbin/ldconfig.real" if Path("/sbin/ldconfig.real").exists() else "/sbin/ldconfig",
    )


if __name__ == "__main__":
    main()
