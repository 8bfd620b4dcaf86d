#!/usr/bin/python
"""Which modules to keep out and which to let in, in; modprobe's files edited, with backups, out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Callable

from ansible.module_utils import commands
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: boot_modprobe
short_description: Have modprobe's files block some modules in one place and let others in
description:
  - Files below /etc/modprobe.d are edited in place. A file elsewhere is not touched but masked by an edited copy of
    the same name in /etc/modprobe.d, which is modprobe's own way. What is taken out stays there as a comment.
options:
  block: {description: Modules to keep out., type: list, elements: str, default: []}
  file: {description: The one file that says so., type: path}
  allow: {description: Modules that no line may keep out., type: list, elements: str, default: []}
  unreserve: {description: PCI vendors whose devices vfio-pci shall not claim., type: list, elements: str, default: []}
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

HEAD = "# Keeps these drivers away from NVIDIA GPUs. Written by lpxdoctor's role boot; the initramfs has a copy.\n"
MARK = "# taken out by lpxdoctor: "
DIRECTORIES = ("etc", "run", "usr/local/lib", "usr/lib", "lib")  # the first file of a name counts: modprobe.d(5)
DOES_NOTHING = ("false", "true", ":")
Texts = dict[str, str]


def name_of(module: str) -> str:
    """Return a module's name as the kernel has it."""
    return module.replace("-", "_")


def blocked_by(line: str) -> str:
    """Return the module that a line keeps out, "" where it keeps none."""
    words = line.split()
    if len(words) >= 2 and words[0] == "blacklist":
        return name_of(words[1])
    if len(words) >= 3 and words[0] == "install" and words[2].rpartition("/")[2] in DOES_NOTHING:
        return name_of(words[1])
    if len(words) >= 3 and words[:2] == ["options", "nouveau"] and "modeset=0" in words:
        return "nouveau"
    return ""


def without_blocks(text: str, modules: list[str]) -> str:
    """Return a text in which no line keeps one of the modules out."""
    wanted = [name_of(module) for module in modules]
    return rewritten(text, lambda line: "" if blocked_by(line) in wanted else line)


def without_reservations(text: str, vendors: list[str]) -> str:
    """Return a text whose vfio-pci options claim no device of the vendors."""

    def changed(line: str) -> str:
        words = line.split()
        if len(words) < 3 or words[0] != "options" or name_of(words[1]) != "vfio_pci":
            return line
        kept = [word for word in (unreserved(word, vendors) for word in words[2:]) if word]
        if kept == words[2:]:
            return line
        return " ".join([*words[:2], *kept]) if kept else ""

    return rewritten(text, changed)


def unreserved(word: str, vendors: list[str]) -> str:
    """Return "ids=8086:1,10de:2" without the ids of the vendors; "" where none is left."""
    key, _, ids = word.partition("=")
    if key != "ids":
        return word
    kept = [one for one in ids.split(",") if one.partition(":")[0].lower() not in vendors]
    return f"ids={','.join(kept)}" if kept else ""


def rewritten(text: str, change: Callable[[str], str]) -> str:
    """Return a text with each logical line changed; what a line was stays above it as a comment."""
    out: list[str] = []
    lines = text.splitlines(keepends=True)
    while lines:
        group = [lines.pop(0)]
        while group[-1].rstrip("\n").endswith("\\") and lines:
            group.append(lines.pop(0))
        logical = "".join(line.rstrip("\n").rstrip("\\") for line in group)
        after = logical if logical.lstrip().startswith("#") else change(logical)
        if after == logical:
            out += group
            continue
        out += [MARK + line.rstrip("\n").rstrip("\\") + "\n" for line in group]
        out += [after + "\n"] if after else []
    return "".join(out)


def in_force(root: Path) -> dict[str, Path]:
    """Return the files that modprobe reads: {name: path}."""
    found: dict[str, Path] = {}
    for directory in DIRECTORIES:
        for path in sorted((root / directory / "modprobe.d").glob("*.conf")):
            found.setdefault(path.name, path)
    return found


def of_a_package(path: Path) -> bool:
    """Tell whether a package brought a file: what it says is its own affair."""
    asked = [argv for argv in (("dpkg-query", "-S"), ("rpm", "-qf")) if shutil.which(argv[0])]
    return any(commands.run(*argv, str(path)).returncode == 0 for argv in asked)


def edits(root: Path, given: dict[str, Any]) -> Texts:
    """Return what has to be written: {path: text}."""
    wanted: Texts = {}
    own = Path(given["file"]) if given["file"] else None
    for name, path in in_force(root).items():
        text = path.read_text(errors="surrogateescape")
        after = without_reservations(without_blocks(text, given["allow"]), given["unreserve"])
        by_hand = path.parent == root / "etc/modprobe.d" and not path.is_symlink()
        if own and by_hand and name != own.name and without_blocks(after, given["block"]) != after:
            after = after if of_a_package(path) else without_blocks(after, given["block"])
        if after != text and (own is None or name != own.name):
            wanted[str(root / "etc/modprobe.d" / name)] = after
    if own:
        text = HEAD + "".join(f"blacklist {module}\n" for module in given["block"])
        text += "options nouveau modeset=0\n" if "nouveau" in given["block"] else ""
        target = root / str(own).lstrip("/")
        if not target.is_file() or target.read_text(errors="surrogateescape") != text:
            wanted[str(target)] = text
    return wanted


def write(module: Any, path: Path, text: str) -> str:
    """Replace a file in one step; return the name of its backup, "" where there was none."""
    backup = module.backup_local(str(path)) if path.is_file() else ""
    new = path.with_name(path.name + ".lpxdoctor-new")
    new.write_text(text, errors="surrogateescape")
    new.chmod(0o644)
    if path.is_symlink():  # an alternative's link: what it points to belongs to a package
        path.unlink()
    new.replace(path)
    return str(backup)


def shown(path: str, text: str) -> dict[str, str]:
    """Return a difference for --diff."""
    before = Path(path).read_text(errors="replace") if Path(path).is_file() else ""
    return {
        "before": before,
        "after": re.sub(r"[\ud800-\udfff]", "?", text),
        "before_header": path,
        "after_header": path,
    }


def main() -> None:
    """Answer as a module."""
    module = AnsibleModule(
        argument_spec={
            "block": {"type": "list", "elements": "str", "default": []},
            "file": {"type": "path"},
            "allow": {"type": "list", "elements": "str", "default": []},
            "unreserve": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["root"])
    try:
        wanted = edits(root, module.params)
        diff = [shown(path, text) for path, text in wanted.items()]
        backups = []
        if wanted and not module.check_mode:
            (root / "etc/modprobe.d").mkdir(exist_ok=True)
            backups = [write(module, Path(path), text) for path, text in sorted(wanted.items())]
    except OSError as error:
        module.fail_json(msg=f"{error.filename or 'modprobe.d'} cannot be changed: {error.strerror}.")
    module.exit_json(changed=bool(wanted), files=sorted(wanted), backups=[name for name in backups if name], diff=diff)


if __name__ == "__main__":
    main()
