"""What GRUB, its environment block or loader entries say in; the kernel of the next boot and its command line out."""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lpxdoctor.evidence import Unreadable
from lpxdoctor.facts.assignments import assignments

_ENTRY = re.compile(r"\s*(menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")(.*)")
_ID = re.compile(r"(?:\$menuentry_id_option|--id)\s+'([^']*)'")
_LINUX = re.compile(r"\s*linux(?:16|efi)?\s+(\S+)\s*(.*)")
_DEFAULT = re.compile(r"^\s*set default=(?:\"([^\"]*)\"|'([^']*)'|(\S+))", re.MULTILINE)


@dataclass(frozen=True)
class NextBoot:
    """What the machine will start next."""

    release: str  # of the kernel, as uname -r will print it
    command_line: str | None  # None where it is not known
    because: str  # how this is known


@dataclass
class _Entry:
    title: str
    id: str
    kernel: str = ""
    command_line: str = ""
    below: list["_Entry"] = field(default_factory=list["_Entry"])


def next_boot(
    grub: str | None,
    environment: str | None,
    entries: Mapping[str, str | None],
    loader: str | None,
    newest: Sequence[str],
) -> NextBoot:
    """Return what boots next.

    Args:
        grub: text of grub.cfg, None where there is none.
        environment: text of grubenv.
        entries: {path: text} of loader/entries/*.conf, which systemd-boot and GRUB on RHEL read.
        loader: text of loader.conf.
        newest: releases of the installed kernels, newest first.

    Raises Unreadable where that cannot be told.
    """
    saved = assignments((environment or "").replace("#", ""))
    menu = _menu(grub or "")
    if any(_starts_linux(entry) for entry in menu):
        return _from_menu(menu, _chosen_in(grub or "", saved))
    readable = {
        path.rpartition("/")[2].removesuffix(".conf"): text for path, text in entries.items() if text is not None
    }
    if len(readable) < len(entries):
        raise Unreadable("the boot loader's entries may not be read by this user")
    if readable:
        wanted = (
            saved.get("next_entry") or saved.get("saved_entry") or assignments(_spaced(loader or "")).get("default", "")
        )
        return _from_entries(readable, wanted, saved)
    if newest:
        return NextBoot(
            newest[0], None, "it is the newest kernel installed, and no boot loader's configuration says more"
        )
    raise Unreadable("neither a boot loader's configuration nor a kernel was found below /boot")


def _menu(text: str) -> list[_Entry]:
    """Return the entries of a grub.cfg, those of submenus below theirs."""
    top = _Entry("", "")
    open_blocks: list[_Entry | None] = [top]  # None for the braces of a function
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            id_ = _ID.search(match[4])
            entry = _Entry(match[2] or match[3] or "", id_[1] if id_ else "")
            parent = next(block for block in reversed(open_blocks) if block is not None)
            parent.below.append(entry)
            open_blocks.append(entry)
        elif re.match(r"\s*function\s", line):
            open_blocks.append(None)
        elif line.strip() == "}" and len(open_blocks) > 1:
            open_blocks.pop()
        elif (match := _LINUX.match(line)) and (entry_ := open_blocks[-1]) is not None:
            entry_.kernel, entry_.command_line = match[1], match[2]
    return top.below


def _starts_linux(entry: _Entry) -> bool:
    """Tell whether an entry of grub.cfg starts Linux; beside loader entries grub.cfg has only extras that do not."""
    return bool(entry.kernel) or any(map(_starts_linux, entry.below))


def _chosen_in(text: str, saved: Mapping[str, str]) -> str:
    """Return GRUB's choice: its one-time entry, else its default, "" for the first."""
    if saved.get("next_entry"):
        return saved["next_entry"]
    values = [match[1] or match[2] or match[3] or "" for match in _DEFAULT.finditer(text)]
    value = next((value for value in reversed(values) if "next_entry" not in value), "")
    return saved.get("saved_entry", "") if "saved_entry" in value else value


def _from_menu(menu: list[_Entry], wanted: str) -> NextBoot:
    """Follow a choice such as "0", "1>2", a title or an id; where it fits nothing GRUB takes the first entry."""
    level, entry = menu, None
    for part in wanted.split(">"):
        names = ((str(number), candidate.title, candidate.id) for number, candidate in enumerate(level))
        entry = next((candidate for candidate, known in zip(level, names, strict=True) if part in known), None)
        level = entry.below if entry else []
    entry = entry or menu[0]
    while not entry.kernel and entry.below:
        entry = entry.below[0]
    if not entry.kernel:
        raise Unreadable(f"GRUB's entry {entry.title!r} starts no Linux kernel")
    return NextBoot(_release(entry.kernel), entry.command_line, f"GRUB will start {entry.title!r}")


def _from_entries(entries: Mapping[str, str], wanted: str, saved: Mapping[str, str]) -> NextBoot:
    """Choose among loader entries: the wanted one, else the newest."""
    order = sorted(entries, key=_natural, reverse=True)
    order.sort(key=lambda name: "rescue" in name)
    fitting = [name for name in order if fnmatch.fnmatch(name, wanted.removesuffix(".conf"))]
    fitting += [order[int(wanted)]] if wanted.isdigit() and int(wanted) < len(order) else []
    name = (fitting or order)[0]
    values = assignments(_spaced(entries[name]))
    options = values.get("options", "").replace("$kernelopts", saved.get("kernelopts", ""))
    release = _release(values.get("linux", "")) if "vmlinuz-" in values.get("linux", "") else values.get("version", "")
    if not release:
        raise Unreadable(f"the boot entry {name} names no kernel")
    return NextBoot(release, options, f"the boot entry {name} comes first")


def _spaced(text: str) -> str:
    """Turn the "key value" lines of loader files into assignments; several options lines are one."""
    pairs = [line.strip().split(None, 1) for line in text.splitlines() if len(line.split(None, 1)) == 2]
    options = " ".join(value for key, value in pairs if key == "options")
    return "\n".join(f"{key}={options if key == 'options' else value}" for key, value in pairs)


def _release(path: str) -> str:
    """Return the release in a kernel's file name; a name without one, as Arch Linux uses, does not tell it."""
    name = path.rpartition("/")[2]
    _, dash, release = name.partition("-")
    if not dash or not release[:1].isdigit():
        raise Unreadable(f"the name of {path} does not tell the kernel's release")
    return release


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts 6.8.0-100 behind 6.8.0-9."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]
