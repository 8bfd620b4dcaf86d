"""The host's dockerd and its unit in; its version, its command line and what it says of a daemon.json out."""

# Runs on the managed host: the standard library of Python 3.9 (RHEL 9's) alone.
from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

UNIT = "docker.service"
_LIMIT_S = 30
# dockerd refuses to start with an option in both places; those that may be repeated have a plural in daemon.json.
# Tried with dockerd 26.1 and 28.5.
_KEYS = {"H": "hosts", "D": "debug", "l": "log-level", "host": "hosts", "insecure-registry": "insecure-registries"}
_PLURALS = (
    *("exec-opt", "log-opt", "storage-opt", "dns-opt", "label", "registry-mirror", "default-ulimit", "feature"),
    *("cdi-spec-dir", "authorization-plugin", "default-address-pool", "node-generic-resource"),
)
_MAY_BE_IN_BOTH = ("add-runtime", "config-file")
_CHATTER = re.compile(
    r"level=(info|warning|debug)|^(Start|Stopp)\w+ docker|^docker\.service: (Deactivated|Schedul|Consumed)"
)
_UNKNOWN = re.compile(r"don't match any configuration option: ([^\n]+)")


def ask(*argv: str, limit_s: float = _LIMIT_S) -> tuple[int, str]:
    """Return exit status and all that a command said; -1 where it could not be run or did not end."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout.strip()


def program() -> str | None:
    """Return where dockerd is; an SSH session's PATH may lack the directories of root."""
    return shutil.which("dockerd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")


def version() -> str:
    """Return dockerd's version as digits, such as 26.1.5; empty where there is none."""
    found = program()
    match = re.search(r"version (\d+(?:\.\d+)*)", ask(found, "--version")[1]) if found else None
    return match[1] if match else ""


def arguments() -> list[str]:
    """Return what the unit starts dockerd with, from the files on disk, drop-ins and environment files applied."""
    command, variables = "", {}
    for name, value in _settings(ask("systemctl", "cat", "--no-pager", UNIT)[1]):
        if name == "ExecStart":
            command = value
        elif name == "Environment":
            variables.update(_assigned(shlex.split(value)))
        elif name == "EnvironmentFile":
            with contextlib.suppress(OSError):
                variables.update(_assigned(shlex.split(Path(value.lstrip("-")).read_text(), comments=True)))
    words: list[str] = []
    for word in shlex.split(command.lstrip("-@+!:")):
        name = word[2:-1] if word.startswith("${") else word[1:] if word.startswith("$") else ""
        words.extend(shlex.split(variables.get(name, "")) if name else [word])
    return words[1:]


def _settings(text: str) -> list[tuple[str, str]]:
    found, section = [], ""
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append((name.strip(), value.strip()))
    return found


def _assigned(words: list[str]) -> dict[str, str]:
    return {name: value for name, mark, value in (word.partition("=") for word in words) if mark}


def keys(words: list[str]) -> list[str]:
    """Return the keys of daemon.json that a command line sets as well."""
    found = []
    for word in words:
        if word.startswith("--"):
            name = word[2:].partition("=")[0]
        elif word.startswith("-") and len(word) > 1:
            name = word[1]  # -H fd://, -H=fd:// and -Hfd:// are the same
        else:
            continue
        if name not in _MAY_BE_IN_BOTH:
            found.append(name + "s" if name in _PLURALS else _KEYS.get(name, name))
    return found


def refusal(file: str, words: list[str]) -> str:
    """Return what dockerd says against a file with these arguments; "" for nothing, or where it cannot be asked."""
    found = program()
    if not found:
        return ""
    status, said = ask(found, "--validate", *words, "--config-file", file)
    # Before 23.0 there is no such option. A configuration that is good is said to be so.
    return "" if status in (0, -1) or "unknown flag: --validate" in said else said.rpartition("\n")[2]


def unknown_keys(said: str) -> list[str]:
    """Return the keys that dockerd names as none of its options."""
    match = _UNKNOWN.search(said)
    return [key.strip() for key in match[1].split(",")] if match else []


def started_at_s() -> float:
    """Return when the running dockerd was started, in seconds since 1970; 0 where none runs."""
    pid = ask("systemctl", "show", UNIT, "--property=MainPID", "--value")[1]
    try:
        ticks = int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[19])
        boot_s = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
        )
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0
    return boot_s + ticks / os.sysconf("SC_CLK_TCK")


def journal(since_s: float) -> str:
    """Return the last complaints of dockerd, and of systemd about it, since a time."""
    ask("journalctl", "--sync")
    said = ask("journalctl", "-u", UNIT, f"--since=@{int(since_s)}", "-o", "cat", "--no-pager", "-n", "500")[1]
    told = [line for line in said.splitlines() if not _CHATTER.search(line)]
    return "\n".join(told[-8:]) or "the journal holds nothing of it"
