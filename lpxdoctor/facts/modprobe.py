"""Files of modprobe.d and a kernel command line in; what keeps a module from loading, and where it says so, out."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# modprobe.d(5): of files with one name the first directory's counts, and all are read in the order of their names.
DIRECTORIES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_DOES_NOTHING = ("false", "true", ":")
_WORDS = re.compile(r'(?:[^\s"]|"[^"]*")+')
# What looks like a way to block a module and is none: the kernel takes the first two for options of the module.
_NO_OPTION = ("blacklist", "blocklist", "disable", "disabled", "enable", "enabled", "off")
_BLOCKING = ("modprobe.blacklist", "module_blacklist")


@dataclass(frozen=True)
class Setting:
    """One line of modprobe's configuration."""

    kind: str  # blacklist, install, options, alias, softdep, remove
    module: str  # with underscores, as the kernel names it
    value: str
    where: str  # "/etc/modprobe.d/nouveau.conf:3"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.module, self.value)))

    @property
    def blocks(self) -> bool:
        """Whether it keeps its module away from the hardware."""
        if self.kind == "install":
            command = self.value.split()
            return bool(command) and command[0].rpartition("/")[2] in _DOES_NOTHING
        if self.kind == "options":  # nouveau then loads and registers no driver
            return self.module == "nouveau" and re.search(r"\bmodeset=0\b", self.value) is not None
        return self.kind == "blacklist"


def settings(files: Mapping[str, str | None]) -> tuple[Setting, ...]:
    """Return every setting in force, in modprobe's order; {path: text} may hold files of all directories.

    A path is /etc/modprobe.d/x.conf on a host, and etc/modprobe.d/x.conf in an initramfs.
    """
    chosen: dict[str, str] = {}
    for path in sorted(files, key=_rank):
        chosen.setdefault(path.rpartition("/")[2], path)
    return tuple(
        setting for name in sorted(chosen) for setting in lines(files[chosen[name]] or "", where=chosen[name] + ":{}")
    )


def _rank(path: str) -> tuple[int, str]:
    directory = "/" + path.lstrip("/").rpartition("/modprobe.d/")[0]
    return (DIRECTORIES.index(directory) if directory in DIRECTORIES else len(DIRECTORIES), path)


def lines(text: str, where: str) -> Iterable[Setting]:
    """Yield the settings of one text; where is a template for the number of the line, or a name without one."""
    number, held = 0, ""
    for line in text.splitlines():
        number += 1
        if line.endswith("\\"):
            held += line[:-1]
            continue
        words = (held + line).split(None, 2)
        held = ""
        if len(words) >= 2 and not words[0].startswith("#"):
            yield Setting(
                words[0], words[1].replace("-", "_"), " ".join(words[2:]).strip(), where.replace("{}", f"{number}")
            )


def blocks(found: Iterable[Setting], module: str) -> tuple[Setting, ...]:
    """Return the settings that keep a module away from the hardware."""
    return tuple(setting for setting in found if setting.module == module and setting.blocks)


@dataclass(frozen=True)
class CommandLine:
    """A kernel's command line."""

    text: str

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, value) of each, "" where it has no value."""
        pairs = (word.partition("=") for word in _WORDS.findall(self.text))
        return tuple((name, value.strip('"')) for name, _, value in pairs)

    def blocks(self, module: str, *, early: bool = False) -> tuple[str, ...]:
        """Return the parameters that keep a module away from the hardware.

        Args:
            module: its name, with underscores.
            early: inside an initramfs that dracut made, where rd.driver.blacklist counts too.
        """
        names = (*_BLOCKING, "rd.driver.blacklist") if early else _BLOCKING
        return tuple(
            f"{name}={value}" if value else name
            for name, value in self.parameters
            if (name in names and module in _modules(value)) or (module == "nouveau" and _no_modeset(name, value))
        )

    def mistaken(self, module: str) -> tuple[str, ...]:
        """Return parameters that were meant to block a module and do not, for all of a boot or at all."""
        known = (*_BLOCKING, "rd.driver.blacklist")
        return tuple(
            f"{name}={value}" if value else name
            for name, value in self.parameters
            if (name.partition(".")[0] == module and name.partition(".")[2] in _NO_OPTION)
            or (name not in known and "blacklist" in name.replace("block", "black") and module in _modules(value))
        )


def _modules(value: str) -> tuple[str, ...]:
    return tuple(name.replace("-", "_") for name in value.split(","))


def _no_modeset(name: str, value: str) -> bool:
    return name == "nomodeset" or (name == "nouveau.modeset" and value == "0")
