"""The files that set environment variables for everybody in, those that change how CUDA works out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Variables that belong to one program for an hour and slow down, misdirect or stop every other one.
# What they do: the CUDA C++ programming guide, appendix on environment variables, and DCGM's list of those it warns of.
HARMFUL: dict[str, str] = {
    "CUDA_LAUNCH_BLOCKING": "makes every kernel launch wait for the one before: decoding becomes several times slower",
    "CUDA_VISIBLE_DEVICES": "hides GPUs from every program, or renumbers them",
    "CUDA_DISABLE_PTX_JIT": "forbids compiling for a GPU newer than the program",
    "CUDA_FORCE_PTX_JIT": "compiles every kernel anew and ignores the ones made for this GPU",
    "CUDA_CACHE_DISABLE": "compiles every kernel anew at each start",
    "CUDA_INJECTION64_PATH": "loads a profiler into every CUDA program",
    "CUDA_PROFILE": "profiles every CUDA program",
    "COMPUTE_PROFILE": "profiles every CUDA program",
    "CUDA_AUTO_BOOST": "overrides the clocks that were set for the GPU",
    "CUDA_DEVICE_WAITS_ON_EXCEPTION": "stops a failing program for a debugger instead of ending it",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "writes GPU memory to disk when a program fails",
    "NVIDIA_TF32_OVERRIDE": "changes the precision of matrix products in every program",
    "NVIDIA_VISIBLE_DEVICES": "is read by the container runtime and hides or shows GPUs in containers",
}
_OFF = {"CUDA_LAUNCH_BLOCKING", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_CACHE_DISABLE", "CUDA_PROFILE"}
_ASSIGNED = re.compile(r"(?:^|[\s\"';])(?:export\s+)?([A-Z][A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;\"']*)")


@dataclass(frozen=True)
class Variable:
    """A variable, its value, and the file and line that set it for everybody."""

    name: str
    value: str
    where: str


def harmful(files: Mapping[str, str]) -> tuple[Variable, ...]:
    """Return the harmful variables set in {path: text} of /etc/environment, shell profiles and systemd's settings."""
    return tuple(
        Variable(name, value, f"{path}:{number}")
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if not line.lstrip().startswith(("#", ";"))
        for name, value in _assignments(line)
        if name in HARMFUL and not (value == "0" and name in _OFF)
    )


def _assignments(line: str) -> list[tuple[str, str]]:
    return [(match[1], match[2].strip("\"'")) for match in _ASSIGNED.finditer(line)]
