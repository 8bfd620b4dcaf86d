#!/usr/bin/python
"""The initramfs of every installed kernel, read back: made anew where it would let nouveau in or holds what is old."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils import commands, host_kernels
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: boot_initramfs
short_description: Make the initramfs of each installed kernel anew where it is not what the host's files say
description:
  - Works with initramfs-tools and with dracut, whichever is installed. Each image is read back before and after with
    their own lsinitramfs or lsinitrd; what holds nouveau or an NVIDIA module is unpacked and compared with the disk.
options:
  block: {description: Modules that an image must not let in., type: list, elements: str, default: [nouveau]}
  always: {description: Whether to make the images anew though nothing is wrong with them., type: bool, default: false}
  root: {description: Where the host's files are; used for reading only., type: path, default: /}
author: lpxdoctor
"""

# What is copied into an image. ctime counts too: a package's files keep the date of their making.
INPUTS = ("etc/modprobe.d/*.conf", "etc/initramfs-tools/modules", "etc/initramfs-tools/conf.d/*", "etc/dracut.conf.d/*")
NVIDIA = re.compile(r"(?:^|/)nvidia(?:-current|-tesla|-legacy)?(?:-open|-\d\w*)*\.ko(?:\.\w+)?$")
SETTINGS = re.compile(r"(?:etc|run|(?:usr/)?(?:local/)?lib)/modprobe\.d/[^/]+\.conf$")
LIMIT_S = 900
MIB = 1 << 20


class Failed(Exception):  # noqa: N818 - it is an answer
    """An image could not be made or read; the message says which and why."""


@dataclass(frozen=True)
class Tool:
    """initramfs-tools or dracut."""

    name: str
    image: str  # {} is the kernel's release
    listing: str
    unpack: tuple[str, ...]

    def make(self, release: str, path: Path) -> tuple[str, ...]:
        """Return the command that makes an image."""
        if self.name == "initramfs-tools":
            return ("update-initramfs", "-u" if path.exists() else "-c", "-k", release)
        return ("dracut", "--force", str(path), release)


def tool(root: Path) -> Tool:
    """Return what this host makes its images with."""
    if shutil.which("update-initramfs") and not re.search("dracut", first_bytes(shutil.which("update-initramfs"))):
        return Tool("initramfs-tools", "boot/initrd.img-{}", "lsinitramfs", ("unmkinitramfs",))
    if shutil.which("dracut"):
        image = "boot/initrd.img-{}" if list((root / "boot").glob("initrd.img-*")) else "boot/initramfs-{}.img"
        return Tool("dracut", image, "lsinitrd", ("lsinitrd", "--unpack"))
    raise Failed(
        "A kernel is installed, and neither update-initramfs nor dracut, which make its initramfs.\n"
        "Install initramfs-tools (Debian, Ubuntu) or dracut (RHEL, Rocky), and run this again."
    )


def first_bytes(program: str | None) -> str:
    """Return the head of a program: Debian's dracut brings a script of the name update-initramfs."""
    return Path(program).read_bytes()[:2048].decode("utf-8", "replace") if program else ""


def changed_at(path: Path) -> float:
    """Return when a file came to be as it is."""
    status = path.stat()
    return max(status.st_mtime, status.st_ctime)


def reason(root: Path, made_by: Tool, release: str, block: list[str]) -> str:
    """Say what is wrong with a kernel's image; "" where nothing is."""
    path = root / made_by.image.format(release)
    if not path.is_file():
        return "there is none"
    made = path.stat().st_mtime
    modules = [file for file in (root / "lib/modules" / release).rglob("nvidia*.ko*") if file.is_file()]
    names = listed(made_by, path)
    inside = [name for name in names if NVIDIA.search(name)]
    inputs = [file for pattern in INPUTS for file in root.glob(pattern)] + (modules if inside else [])
    newer = [str(file) for file in inputs if changed_at(file) > made]
    if newer:
        return f"{newer[0]} is newer"
    held = [module for module in block if any(re.search(rf"/{module}\.ko(?:\.\w+)?$", name) for name in names)]
    return contradicted(made_by, path, held, inside, modules) if held or inside else ""


def listed(made_by: Tool, path: Path) -> list[str]:
    """Return the names of what is in an image."""
    lines = run(made_by.listing, str(path)).splitlines()
    if made_by.name == "dracut":  # lines of ls -l
        lines = [line.split(" -> ")[0].split()[-1] for line in lines if re.match(r"[-lh]r", line)]
    return lines


def contradicted(made_by: Tool, path: Path, held: list[str], inside: list[str], modules: list[Path]) -> str:
    """Unpack an image; say what it lets in, or which other NVIDIA module it holds."""
    with tempfile.TemporaryDirectory(prefix="lpxdoctor-initramfs-", dir="/var/tmp") as directory:
        unpack(made_by, path, Path(directory))
        texts = [file.read_text(errors="replace") for file in found(Path(directory), SETTINGS)]
        lines = {" ".join(line.split()) for text in texts for line in text.splitlines()}
        for module in held:
            if f"blacklist {module}" not in lines:
                return f"it holds {module}, and nothing in it keeps {module} out"
        copies = {version(file) for file in found(Path(directory), NVIDIA)} if inside else set()
    on_disk = {version(file) for file in modules if NVIDIA.search(str(file))}
    if copies and copies != on_disk:
        return (
            f"it holds the NVIDIA module {', '.join(sorted(copies))}, on disk is {', '.join(sorted(on_disk)) or 'none'}"
        )
    return ""


def unpack(made_by: Tool, path: Path, directory: Path) -> None:
    """Unpack an image."""
    if made_by.name == "dracut":
        run(*made_by.unpack, str(path), directory=directory)
    else:
        run(*made_by.unpack, str(path), str(directory))


def found(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the files of a tree whose path fits; a link is followed where it leads to a file of the tree."""
    paths = (path for path in directory.rglob("*") if pattern.search(str(path.relative_to(directory))))
    return [path for path in paths if path.is_file()]


def version(module: Path) -> str:
    """Return the version of a kernel module."""
    return run("modinfo", "-F", "version", str(module)).strip()


def make(root: Path, made_by: Tool, release: str) -> None:
    """Make an image anew, where there is room for a second one beside it."""
    path = root / made_by.image.format(release)
    size = path.stat().st_size if path.is_file() else 0
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise Failed(
            f"There are {free // MIB} MiB free on {path.parent}, and the initramfs of {release} takes {size // MIB}.\n"
            "Remove kernels that are no longer used (apt-get autoremove --purge, dnf remove --oldinstallonly)."
        )
    run(*made_by.make(release, path))


def run(*argv: str, directory: Path | None = None) -> str:
    """Return what a command said."""
    done = commands.run(*argv, limit_s=LIMIT_S, directory=directory)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise Failed(f"{' '.join(argv)} ended with {done.returncode}:\n{said}")
    return str(done.stdout)


def bring_up_to_date(root: Path, given: dict[str, Any], *, check: bool) -> dict[str, str]:
    """Make what has to be made; return {release: why}."""
    releases = host_kernels.installed(root)
    if not releases:
        return {}
    made_by, remade = tool(root), {}
    for release in releases:
        why = reason(root, made_by, release, given["block"]) or ("it was asked for" if given["always"] else "")
        if not why:
            continue
        remade[release] = why
        if check:
            continue
        make(root, made_by, release)
        left = reason(root, made_by, release, given["block"])
        if left:
            raise Failed(
                f"The initramfs of kernel {release} was made anew and read back, and still {left}.\n"
                f"Look for what overrides it in /etc/initramfs-tools, /etc/dracut.conf.d and modprobe.d."
            )
    return remade


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "block": {"type": "list", "elements": "str", "default": ["nouveau"]},
            "always": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    try:
        remade = bring_up_to_date(root, module.params, check=module.check_mode)
    except (Failed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(remade), remade=remade, kernels=host_kernels.installed(root))


if __name__ == "__main__":
    main()
