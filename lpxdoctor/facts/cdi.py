"""CDI specification files in; which GPUs they hand to containers, and of which driver, out.

Format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIND = "nvidia.com/gpu"
_LATER = "/var/run/cdi/"  # the second of the directories that runtimes read, and it has the last word
# A library of the driver carries the driver's version; others that are mounted along (libnvidia-egl-wayland) their own.
_VERSIONED = re.compile(
    r"/lib(?:cuda|nvidia-(?:ml|ptxjitcompiler|nvvm|opencl|cfg|gpucomp))\.so\.(\d{3,}\.\d+(?:\.\d+)?)$"
)
_FIRMWARE = re.compile(r"/firmware/nvidia/(\d{3,}\.\d+(?:\.\d+)?)(?:/|$)")


@dataclass(frozen=True)
class Node:
    """A device node that a specification hands over; numbers are None where it leaves them to the host."""

    path: str  # on the host
    major: int | None = None
    minor: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One specification file."""

    path: str
    error: str = ""  # why no runtime can use it; then nothing else is there
    version: str = ""
    kind: str = ""
    devices: tuple[str, ...] = ()  # names behind "nvidia.com/gpu="
    nodes: tuple[Node, ...] = ()
    mounts: tuple[str, ...] = ()  # paths on the host
    hooks: tuple[str, ...] = ()  # programs that the runtime starts on the host

    @property
    def driver_versions(self) -> tuple[str, ...]:
        """The driver versions in the names of what is mounted; () where no name carries one."""
        matches = (_VERSIONED.search(path) or _FIRMWARE.search(path) for path in self.mounts)
        return tuple(sorted({match[1] for match in matches if match}))

    @property
    def uuids(self) -> tuple[str, ...]:
        """The GPUs that it names by UUID."""
        return tuple(name for name in self.devices if name.startswith("GPU-"))


def specs(files: Mapping[str, str | None]) -> tuple[Spec, ...]:
    """Return the specifications of {path: text, None for an unreadable one}; runtimes read .json, .yaml and .yml."""
    return tuple(
        spec(path, text) for path, text in sorted(files.items()) if path.rpartition(".")[2] in ("json", "yaml", "yml")
    )


def spec(path: str, text: str | None) -> Spec:
    """Return one specification, or why it is none."""
    if text is None:
        return Spec(path=path, error="it cannot be read")
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else _yaml(text)
    except (ValueError, RecursionError) as error:
        return Spec(path=path, error=str(error).partition("\n")[0])
    try:
        return _spec(path, data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return Spec(path=path, error=f"it is no CDI specification: {type(error).__name__} {error}")


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - it takes as long to import as all facts together

    try:
        # In C: a specification of eight GPUs has two thousand lines.
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _spec(path: str, data: Any) -> Spec:
    common = data.get("containerEdits") or {}
    edits = [common, *((device.get("containerEdits") or {}) for device in data["devices"])]
    return Spec(
        path=path,
        version=str(data["cdiVersion"]),
        kind=str(data["kind"]),
        devices=tuple(str(device["name"]) for device in data["devices"]),
        nodes=_once(_node(each) for edit in edits for each in edit.get("deviceNodes") or ()),
        mounts=_once(str(each["hostPath"]) for edit in edits for each in edit.get("mounts") or ()),
        hooks=_once(str(each["path"]) for edit in edits for each in edit.get("hooks") or ()),
    )


def _node(data: Mapping[str, Any]) -> Node:
    major, path = data.get("major"), str(data.get("hostPath") or data["path"])
    # A runtime fills in from the host what is left out or zero; written out, a minor of zero is left out.
    return Node(path, major, int(data.get("minor") or 0)) if isinstance(major, int) and major else Node(path)


def _once(values: Any) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def named_twice(found: tuple[Spec, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return {device: files} of each device that more than one file names."""
    where: dict[str, list[str]] = {}
    for each in found:
        for name in dict.fromkeys(each.devices):
            where.setdefault(f"{each.kind}={name}", []).append(each.path)
    return {device: tuple(paths) for device, paths in where.items() if len(paths) > 1}


def counting(found: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Return the specifications that still decide about a device: one in /var/run/cdi hides one in /etc/cdi."""
    later = {f"{each.kind}={name}" for each in found if each.path.startswith(_LATER) for name in each.devices}
    return tuple(
        each
        for each in found
        if each.path.startswith(_LATER) or not {f"{each.kind}={name}" for name in each.devices} <= later
    )
