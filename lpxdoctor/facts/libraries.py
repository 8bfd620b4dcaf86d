"""What programs/libraries.py prints in; which of the driver's libraries the loader takes, and of which version, out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpxdoctor.evidence import Unreadable

CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
JIT = "libnvidia-ptxjitcompiler.so.1"

_VERSION = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


@dataclass(frozen=True)
class Library:
    """A library as a program finds it: its path, and the file behind all links."""

    name: str
    path: str
    real: str
    by: str  # "LD_LIBRARY_PATH" or "ldconfig"

    @property
    def version(self) -> str:
        """The driver version in the file's name, "" where it has none."""
        match = _VERSION.search(self.real)
        return match[1] if match else ""

    @property
    def is_stub(self) -> bool:
        """Whether it is the toolkit's stand-in for linking, in which every call fails."""
        return "/stubs/" in self.real or "/stubs/" in self.path

    @property
    def is_compat(self) -> bool:
        """Whether it is the user-mode driver of a cuda-compat package."""
        return "/compat/" in self.real or "/compat/" in self.path


@dataclass(frozen=True)
class Libraries:
    """The driver's libraries on this host: those that the loader takes, and all files of theirs that were found."""

    taken: tuple[Library, ...]
    files: tuple[tuple[str, str], ...]  # (path, real path)

    def get(self, name: str) -> Library | None:
        """Return what the loader takes for a name such as libcuda.so.1, None where it finds none."""
        return next((library for library in self.taken if library.name == name), None)

    def elsewhere(self, name: str) -> tuple[str, ...]:
        """Return where a library lies that is not a stub, whether or not the loader looks there."""
        return tuple(
            path
            for path, real in self.files
            if path.endswith("/" + name) and "/stubs/" not in real and "/compat/" not in real
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """{version: a file of it} of libcuda and libnvidia-ml in the directories that the loader takes them from."""
        places = {library.path.rpartition("/")[0] for library in self.taken}
        places |= {library.real.rpartition("/")[0] for library in self.taken}
        found: dict[str, str] = {}
        for path, real in self.files:
            match = _VERSION.search(real)
            if (
                match
                and path.rpartition("/")[0] in places
                and path.rpartition("/")[2].startswith(("libcuda", "libnvidia-ml"))
            ):
                found.setdefault(match[1], real)
        return found


def libraries(raw: Mapping[str, Any]) -> Libraries:
    """Return the libraries; Unreadable where the loader's cache is, and so what it takes."""
    files: dict[str, str] = raw["files"]
    searched = [place.rstrip("/") for place in str(raw["ld_library_path"]).split(":") if place]
    if raw["cache"] is None and not searched:
        raise Unreadable(f"what the loader takes: {raw['cache_reason']}")
    taken = [_taken(name, files, searched, raw["cache"] or {}) for name in (CUDA, NVML, JIT)]
    return Libraries(tuple(library for library in taken if library), tuple(files.items()))


def _taken(name: str, files: Mapping[str, str], searched: list[str], cache: Mapping[str, list[str]]) -> Library | None:
    for place in searched:
        path = f"{place}/{name}"
        if path in files:
            return Library(name, path, files[path], "LD_LIBRARY_PATH")
    for path in cache.get(name, [])[:1]:
        return Library(name, path, files.get(path, path), "ldconfig")
    return None
