#!/usr/bin/python
"""What must go from the kernel's command line, and what must be there, in; the boot loader told, or as it was, out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils import commands
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.text_file import printable, read, write

DOCUMENTATION = r"""
module: boot_command_line
short_description: Correct the kernel's command line, through GRUB or grubby
options:
  allow: {description: Modules that no parameter may keep out., type: list, elements: str, default: []}
  unreserve: {description: PCI vendors whose devices vfio-pci shall not claim., type: list, elements: str, default: []}
  remove: {description: "Parameters to remove, as NAME or NAME=VALUE.", type: list, elements: str, default: []}
  add: {description: "Parameters that must be there, as NAME=VALUE.", type: list, elements: str, default: []}
  root: {description: Where the host's files are., type: path, default: /}
author: lpxdoctor
"""

LISTS = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")
# An assignment of the shell's: its name, and what stands within one pair of quotes or within none.
SETTING = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)="""
    r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s"'#;\\$`]*))(?=[ \t]*(?:[ \t]#[^\n]*)?\r?$)""",
    re.MULTILINE | re.DOTALL,
)
ASSIGNED = re.compile(r"\bGRUB_CMDLINE_LINUX=")  # in whatever way
LINUX = re.compile(r"^\s*linux(?:16|efi)?\s+\S+\s*(.*)$", re.MULTILINE)
WORDS = re.compile(r"""(?:[^\s"\\]|\\[^\n]|"[^"]*")+""")  # a line that a backslash continues is one line
Given = dict[str, Any]


class Refused(Exception):  # noqa: N818 - it is an answer
    """The boot loader was not told; the message says why."""


def changed(word: str, given: Given) -> str:
    """Return a parameter as it may stay; "" where it may not."""
    name, _, value = word.partition("=")
    if word in given["remove"] or name in given["remove"]:
        return ""
    if name in LISTS:
        modules = value.split(",")
        kept = [module for module in modules if module.replace("-", "_") not in given["allow"]]
        return word if kept == modules else f"{name}={','.join(kept)}" if kept else ""
    if name == "vfio-pci.ids":
        ids = value.split(",")
        kept = [one for one in ids if one.partition(":")[0].lower() not in given["unreserve"]]
        return word if kept == ids else f"{name}={','.join(kept)}" if kept else ""
    return word


def corrected(text: str, given: Given) -> str:
    """Return a command line without what must go; all else of it as it was, to the byte."""
    out, at = "", 0
    for match in WORDS.finditer(text):
        after = changed(match[0], given)
        if after:
            out += (text[at : match.start()] if out or not at else "") + after
        at = match.end()
    return out + text[at:]


def missing(text: str, given: Given) -> list[str]:
    """Return the parameters that are not there yet."""
    there = WORDS.findall(text)
    return [word for word in given["add"] if word not in there]


def edited(text: str, given: Given) -> str:
    """Return a file of GRUB's settings, corrected."""

    def one(match: re.Match[str]) -> str:
        start, end = match.span(match.lastindex or 0)
        whole = match.string
        return whole[match.start() : start] + corrected(whole[start:end], given) + whole[end : match.end()]

    return SETTING.sub(one, text)


def with_added(text: str, words: list[str]) -> str:
    """Return a file of GRUB's settings with parameters added to what every entry gets."""
    known = [match for match in SETTING.finditer(text) if match[1] == "GRUB_CMDLINE_LINUX"]
    if known and len(known) == len(ASSIGNED.findall(text)) and known[-1][4] is None:
        start, end = known[-1].span(known[-1].lastindex or 0)
        return text[:start] + f"{text[start:end]} {' '.join(words)}".strip() + text[end:]
    # Whatever shell has made it what it is, it goes on as that.
    line_end = "" if not text or text.endswith("\n") else "\n"
    return f'{text}{line_end}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(words)}"\n'


def grub_files(root: Path) -> list[Path]:
    """Return the files that make up GRUB's settings and the command line of kernels to come, those that exist."""
    parts = sorted((root / "etc/default/grub.d").glob("*.cfg"))
    return [path for path in (root / "etc/default/grub", *parts) if path.is_file()]


def menu_is_stale(root: Path, given: Given) -> bool:
    """Tell whether the menu that was generated from the settings says what they must not say, or lacks something."""
    menu = root / "boot/grub/grub.cfg"
    lines = LINUX.findall(menu.read_text(errors="replace")) if menu.is_file() else []
    # The first entry alone for what is to be added: a memory test among the others never gets it.
    return any(corrected(line, given) != line for line in lines) or any(missing(line, given) for line in lines[:1])


def wanted_files(root: Path, given: Given) -> dict[Path, str]:
    """Return what has to be written: {path: text}."""
    before = {path: read(path) for path in grub_files(root)}
    texts = {path: edited(text, given) for path, text in before.items()}
    add = missing(" ".join(value for text in texts.values() for value in values(text)), given)
    if add and texts:
        # The shell reads them in this order: what comes before the last assignment may be lost to it.
        last = [path for path, text in texts.items() if ASSIGNED.search(text)]
        path = last[-1] if last else next(iter(texts))
        texts[path] = with_added(texts[path], add)
    wanted = {path: text for path, text in texts.items() if text != before[path]}
    kernel = root / "etc/kernel/cmdline"  # of entries that kernel-install makes
    if kernel.is_file():
        line = read(kernel)
        after = " ".join([corrected(line.strip(), given), *missing(line, given)]) + "\n"
        if after.split() != line.split():
            wanted[kernel] = after
    return wanted


def values(text: str) -> list[str]:
    """Return the command lines in a file of GRUB's settings."""
    return [match[match.lastindex or 0] for match in SETTING.finditer(text)]


def told_grubby(given: Given, *, check: bool) -> list[str]:
    """Have grubby correct the entries of all kernels; return what it was, or would be, asked to do."""
    args = re.findall(r'^args="(.*)"$', run("grubby", "--info=ALL"), re.MULTILINE)
    words = [word for line in args for word in WORDS.findall(line)]
    asked = []
    for word in dict.fromkeys(words):
        after = changed(word, given)
        if after != word:
            asked.append(f"--remove-args={word}")
            asked += [f"--args={after}"] if after else []
    asked += [f"--args={word}" for word in given["add"] if any(missing(line, given) for line in args)]
    for one in [] if check else asked:
        run("grubby", "--update-kernel=ALL", one)
    return asked


def run(*argv: str) -> str:
    """Return what a command of the boot loader said."""
    done = commands.run(*argv)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise Refused(f"{' '.join(argv)} ended with {done.returncode}:\n{said}")
    return str(done.stdout)


def make_menu(root: Path, given: Given) -> None:
    """Make GRUB's menu anew and see that it says so."""
    run("update-grub")
    if menu_is_stale(root, given):
        raise Refused("update-grub leaves an entry as it was: look into /etc/grub.d/40_custom and the like.")


def apply(module: Any, root: Path, wanted: dict[Path, str], given: Given, *, menu: bool) -> list[str]:
    """Write the files, each with a backup, and make the menu; put everything back when that fails."""
    before = {path: read(path) for path in wanted}
    backups = [str(module.backup_local(str(path))) for path in wanted]
    try:
        for path, text in wanted.items():
            write(path, text)
        if menu:
            make_menu(root, given)
    except (Refused, OSError) as error:
        for path, text in before.items():
            if read(path) != text:
                write(path, text)
        raise Refused(f"The boot menu could not be made anew, and the settings are as they were.\n{error}") from error
    return backups


def shown(path: Path, text: str) -> dict[str, str]:
    """Return a difference for --diff."""
    said = {"before": printable(read(path)), "after": printable(text)}
    return {**said, "before_header": str(path), "after_header": str(path)}


def main() -> None:
    """Answer as a module."""
    names = ("allow", "unreserve", "remove", "add")
    module = AnsibleModule(
        argument_spec={
            "allow": {"type": "list", "elements": "str", "default": []},
            "unreserve": {"type": "list", "elements": "str", "default": []},
            "remove": {"type": "list", "elements": "str", "default": []},
            "add": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    root, given = Path(module.params["root"]), {name: module.params[name] for name in names}
    given["allow"] = [name.replace("-", "_") for name in given["allow"]]
    try:
        wanted = wanted_files(root, given)
        menu = shutil.which("update-grub") is not None and (bool(wanted) or menu_is_stale(root, given))
        asked = told_grubby(given, check=module.check_mode) if shutil.which("grubby") else []
        diff = [shown(path, text) for path, text in wanted.items()]
        backups = [] if module.check_mode else apply(module, root, wanted, given, menu=menu)
    except (Refused, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(wanted or menu or asked),
        files=sorted(map(str, wanted)),
        backups=backups,
        asked=asked,
        diff=diff,
    )


if __name__ == "__main__":
    main()
