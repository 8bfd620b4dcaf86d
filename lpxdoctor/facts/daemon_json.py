"""Docker's daemon.json and its unit files in; what Docker will be told at its next start out."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# dockerd refuses to start when an option is in both places; options that may be repeated have a plural in the file.
# Tried on dockerd 28.5.2 with --validate; runtimes may be in both.
_KEYS = {
    "H": "hosts",
    "D": "debug",
    "l": "log-level",
    "host": "hosts",
    "insecure-registry": "insecure-registries",
    **{
        option: option + "s"
        for option in (
            *("exec-opt", "log-opt", "storage-opt", "dns-opt", "label", "registry-mirror", "default-ulimit", "feature"),
            *("cdi-spec-dir", "authorization-plugin", "default-address-pool", "node-generic-resource"),
        )
    },
}
_MAY_BE_IN_BOTH = ("add-runtime",)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One daemon.json: its values, or why dockerd cannot read it, and the keys that stand in it twice."""

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""  # "" where it is valid JSON
    duplicates: tuple[str, ...] = ()
    marked: bool = False  # it begins with a byte order mark, which Docker takes from 23.0 on

    @property
    def runtimes(self) -> Mapping[str, str]:
        """Return {name: program}; a runtime may also name a type of containerd's."""
        found = self.values.get("runtimes")
        if not isinstance(found, dict):
            return {}
        return {
            name: str(each.get("path") or each.get("runtimeType") or "")
            for name, each in found.items()
            if isinstance(each, dict)
        }

    @property
    def cdi(self) -> bool | None:
        """Whether CDI is switched on or off here, None where the file leaves it to Docker."""
        features = self.values.get("features")
        value = features.get("cdi") if isinstance(features, dict) else None
        return value if isinstance(value, bool) else None

    @property
    def cgroup_driver(self) -> str:
        """The cgroup driver that is asked for, "" where the file leaves it to Docker."""
        options = self.values.get("exec-opts")
        named = [str(each) for each in options] if isinstance(options, list) else []
        return next((each.partition("=")[2] for each in named if each.startswith("native.cgroupdriver=")), "")


def settings(path: str, text: str) -> Settings:
    """Return what a daemon.json holds. Docker takes an empty file as well."""
    twice: list[str] = []

    def noting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(name for name in dict.fromkeys(names) if names.count(name) > 1)
        return dict(pairs)

    marked = text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return Settings(path=path, marked=marked)
    try:
        values = json.loads(text, object_pairs_hook=noting)
    except json.JSONDecodeError as error:
        return Settings(path=path, error=f"line {error.lineno}, column {error.colno}: {error.msg}")
    except RecursionError:
        return Settings(path=path, error="nested too deeply")
    if not isinstance(values, dict):
        return Settings(path=path, error="it is no JSON object")
    return Settings(path=path, values=values, duplicates=tuple(twice), marked=marked)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """How systemd starts Docker: the options of dockerd, by the key of daemon.json that each of them is, and where."""

    path: str  # of the file whose ExecStart counts
    options: Mapping[str, tuple[str, ...]]


def unit(files: Mapping[str, str | None], environment: Mapping[str, str]) -> Unit | None:
    """Return Docker's unit, None where systemd has none.

    Args:
        files: {path: text} of docker.service and its drop-ins in /etc, /run and /lib; None for an unreadable one.
        environment: what /etc/default/docker or /etc/sysconfig/docker set for it.
    """
    command, where = "", ""
    variables = dict(environment)
    for path in _in_order(files):
        for name, value in _service_lines(files[path] or ""):
            if name == "ExecStart":
                command, where = value, path  # an empty one takes back those before it
            elif name == "Environment":
                variables.update((key, said) for key, _, said in (word.partition("=") for word in shlex.split(value)))
    if not command:
        return None
    return Unit(path=where, options=options(_expanded(command, variables)))


def _in_order(files: Mapping[str, str | None]) -> list[str]:
    """Return the paths as systemd reads them: the unit, then drop-ins by name; of one name the one in /etc counts."""
    rank = {"/etc": 0, "/run": 1}
    counting: dict[str, str] = {}
    for path in sorted(files, key=lambda path: rank.get(path[: path.find("/", 1)], 2)):
        counting.setdefault(path.rpartition("/")[2], path)
    dropins = sorted(name for name in counting if name != "docker.service")
    return [counting[name] for name in ("docker.service", *dropins) if name in counting]


def _service_lines(text: str) -> list[tuple[str, str]]:
    """Return the settings of the [Service] section, with lines that a backslash continues put together."""
    found, section = [], ""
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append((name.strip(), value.strip()))
    return found


def _expanded(command: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of a command: a variable that is a whole word becomes several, as systemd does."""
    words: list[str] = []
    for word in shlex.split(command.lstrip("-@+!:")):
        name = word[2:-1] if word.startswith("${") else word[1:] if word.startswith("$") else ""
        words.extend(shlex.split(variables.get(name, "")) if name else [word])
    return words


def options(words: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the options of a dockerd command line by the key that each is in daemon.json."""
    found: dict[str, tuple[str, ...]] = {}
    for number, word in enumerate(words[1:], start=1):
        if not word.startswith("-") or word.strip("-") == "":
            continue
        name, joined, value = word.lstrip("-").partition("=")
        if not word.startswith("--"):
            name, value = word[1], value if joined else word[2:]  # -H fd://, -H=fd:// and -Hfd:// are the same
            joined = value
        follows = words[number + 1] if number + 1 < len(words) else ""
        if not joined and not follows.startswith("-"):
            value = follows
        if name not in _MAY_BE_IN_BOTH:
            key = _KEYS.get(name, name)
            found[key] = (*found.get(key, ()), value)
    return found


def conflicts(file: Settings, started: Unit | None) -> tuple[str, ...]:
    """Return the keys that dockerd finds in both places, at which it refuses to start."""
    return tuple(key for key in file.values if started and key in started.options)
