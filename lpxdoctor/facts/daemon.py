"""Docker's own answers in, what the live daemon is and has out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Flavor = Literal["package", "snap", "rootless", "desktop", "podman"]


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A Docker that answers, as it runs now."""

    server: str  # where it was asked: "unix:/var/run/docker.sock"
    version: str
    podman: bool
    operating_system: str
    root_dir: str
    runtimes: Mapping[str, str]  # name -> program, as it was registered
    default_runtime: str
    cgroup_driver: str
    cgroup_version: str
    security: tuple[str, ...]
    cdi_dirs: tuple[str, ...]  # () where the engine is too old to have CDI, or has it off
    live_restore: bool
    proxy: str

    @property
    def rootless(self) -> bool:
        """Whether it runs without root."""
        return any(option.startswith("name=rootless") for option in self.security)

    @property
    def flavor(self) -> Flavor:
        """How it came here; Desktop runs its containers in a virtual machine, and says so itself."""
        if self.podman:
            return "podman"
        if self.operating_system == "Docker Desktop":
            return "desktop"
        if self.root_dir.startswith("/var/snap/"):
            return "snap"
        return "rootless" if self.rootless else "package"


def daemon(answer: Mapping[str, Any]) -> Daemon:
    """Return the daemon of programs/docker.py's answer."""
    version, info = answer["version"], answer["info"]
    components = [str(each.get("Name")) for each in version.get("Components") or ()]
    return Daemon(
        server=answer["server"],
        version=version["Version"],
        podman=any("Podman" in name for name in components),
        operating_system=info.get("OperatingSystem") or "",
        root_dir=info.get("DockerRootDir") or "",
        runtimes={
            name: runtime.get("path") or runtime.get("runtimeType") or ""
            for name, runtime in (info.get("Runtimes") or {}).items()
        },
        default_runtime=info.get("DefaultRuntime") or "",
        cgroup_driver=info.get("CgroupDriver") or "",
        cgroup_version=str(info.get("CgroupVersion") or ""),
        security=tuple(info.get("SecurityOptions") or ()),
        cdi_dirs=tuple(info.get("CDISpecDirs") or ()),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        proxy=info.get("HttpsProxy") or info.get("HttpProxy") or "",
    )
