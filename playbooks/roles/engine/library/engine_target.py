#!/usr/bin/python
"""What this host offers an engine: nothing in, its user, Python, Docker Engine and GPUs as they are out."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.docker_socket import DockerError, get

DOCUMENTATION = r"""
module: engine_target
short_description: Look at what a host offers an engine, changing nothing
options:
  docker_socket: {description: Where the Docker Engine listens., type: path, required: true}
author: lpxdoctor
"""

Facts = dict[str, Any]
QUERY = "--query-gpu=driver_version,compute_cap,name"
NVIDIA_SMI_LIMIT_S = 20
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA controller; 3D controller, which data centre GPUs are


def user() -> Facts:
    """Return who the modules run as, ansible_become applied."""
    return {"uid": os.getuid(), "gid": os.getgid(), "name": getpass.getuser(), "home": str(Path.home())}


def docker(socket: str) -> Facts:
    """Return version and storage of the engine, and how a container gets GPUs from it."""
    info = get(socket, "/info")
    return {
        "version": info["ServerVersion"],
        "architecture": info["Architecture"],
        "cdi": offers_cdi(info),
    }


def offers_cdi(info: Facts) -> bool:
    """Tell whether the engine can hand out nvidia.com/gpu devices by CDI."""
    discovered = info.get("DiscoveredDevices")
    if discovered:  # Docker 28.2 and newer name the devices themselves
        return any(str(device.get("ID", "")).startswith("nvidia.com/gpu=") for device in discovered)
    # From Docker 25 the directories are listed where CDI is on; a specification has to lie in one of them.
    for directory in info.get("CDISpecDirs") or []:
        for file in sorted(Path(directory).glob("*")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if "nvidia.com/gpu" in file.read_text():
                    return True
    return False


def gpus() -> Facts:
    """Return NVIDIA devices on the PCI bus, and what nvidia-smi says of driver and compute capability."""
    found: Facts = {"on_bus": on_bus(), "driver": None, "cards": [], "error": None}
    if shutil.which("nvidia-smi") is None:
        found["error"] = "nvidia-smi is not installed"
        return found
    code, said = ask_nvidia_smi()
    rows = [[cell.strip() for cell in line.split(",", 2)] for line in said.splitlines() if line.count(",") >= 2]
    if code != 0 or not rows:
        found["error"] = said.strip() or f"nvidia-smi ended with {code}"
        return found
    found["driver"] = rows[0][0]
    found["cards"] = [{"name": row[2], "compute_capability": row[1]} for row in rows]
    return found


def on_bus() -> int:
    """Count the NVIDIA display and 3D controllers that sysfs shows."""
    devices = Path("/sys/bus/pci/devices").glob("*")
    return sum(1 for device in devices if read(device / "vendor") == NVIDIA_VENDOR and is_display(device))


def is_display(device: Path) -> bool:
    """Tell a GPU from the audio and USB functions on the same card."""
    return read(device / "class").startswith(DISPLAY_CLASSES)


def read(file: Path) -> str:
    """Return a small file's text, empty when it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def ask_nvidia_smi() -> tuple[int, str]:
    """Run nvidia-smi with a limit that also holds when the driver leaves it in uninterruptible sleep."""
    command: list[str] = ["nvidia-smi", QUERY, "--format=csv,noheader"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=NVIDIA_SMI_LIMIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Not waited for: a process in uninterruptible sleep does not end by being killed.
        return -1, f"nvidia-smi did not end within {NVIDIA_SMI_LIMIT_S} s"
    return process.returncode, said


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={"docker_socket": {"type": "path", "required": True}}, supports_check_mode=True
    )
    try:
        engine = docker(module.params["docker_socket"])
    except DockerError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        user=user(),
        has_requests=importlib.util.find_spec("requests") is not None,
        docker=engine,
        gpu=gpus(),
    )


if __name__ == "__main__":
    main()
