"""A healthy driver as a value, for tests to change."""

from typing import Any

from lpxdoctor.facts.driver import Daemon, Driver, Smi
from lpxdoctor.facts.libraries import Libraries, Library
from lpxdoctor.facts.nodes import Adapter, Node
from lpxdoctor.facts.packages import Automatic, Package
from tests.facts.given import only

VERSION = "580.95.05"
LIB = "/usr/lib/x86_64-linux-gnu"


def library(name: str, version: str = VERSION, **changes: Any) -> Library:
    """Return a library that ldconfig knows."""
    given = {"path": f"{LIB}/{name}", "real": f"{LIB}/{name.removesuffix('.1')}.{version}", "by": "ldconfig"}
    return Library(**{"name": name, **given, **changes})


def libraries(version: str = VERSION, *others: Library) -> Libraries:
    """Return the three libraries of a version; others stand in for those of the same name."""
    names = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")
    replaced = {other.name: other for other in others}
    taken = tuple(replaced.get(name, library(name, version)) for name in names)
    return Libraries(taken, tuple((each.path, each.real) for each in taken))


def node(path: str, major: int, minor: int, mode: int = 0o666) -> Node:
    """Return a device node that everybody may use."""
    return Node(path, major, minor, mode, 0, 0)


NODES = (
    node("/dev/nvidia0", 195, 0),
    node("/dev/nvidiactl", 195, 255),
    node("/dev/nvidia-uvm", 510, 0),
    node("/dev/nvidia-uvm-tools", 510, 1),
)
PACKAGES = (
    Package("libnvidia-compute-580-server:amd64", "580.95.05-0ubuntu0.24.04.1", held=True),
    Package("nvidia-dkms-580-server-open", "580.95.05-0ubuntu0.24.04.1", held=True),
)


def healthy_driver(**changes: Any) -> Driver:
    """Return the open driver 580.95.05, with one GPU, its packages held."""
    good: dict[str, Any] = {
        "loaded": VERSION,
        "open_module": True,
        "in_memory": frozenset({"nvidia", "nvidia_uvm", "nvidia_modeset"}),
        "adapters": (Adapter("0000:01:00.0", "NVIDIA H200", 0, VERSION, excluded=False),),
        "parameters": {"DeviceFileMode": "438"},
        "majors": {"mem": 1, "nvidia": 195, "nvidiactl": 195, "nvidia-uvm": 510},
        "nodes": NODES,
        "libraries": libraries(),
        "smi": Smi("/usr/bin/nvidia-smi", 0, "", "", ""),
        "runfile": False,
        "modprobe_helper": True,
        "firmware": frozenset({VERSION}),
        "packages": PACKAGES,
        "automatic": Automatic("unattended-upgrades", "/etc/apt/apt.conf.d/20auto-upgrades"),
        "last_change": None,
        "persistenced": Daemon(installed=True, active=True, command="/usr/bin/nvidia-persistenced --verbose"),
        "variables": (),
        "complaints": (),
    }
    return only(Driver, **{**good, **changes})


def no_driver(**changes: Any) -> Driver:
    """Return a host that never had a driver."""
    nothing: dict[str, Any] = {
        "loaded": "",
        "open_module": False,
        "in_memory": frozenset[str](),
        "adapters": (),
        "parameters": {},
        "majors": {"mem": 1},
        "nodes": (),
        "libraries": Libraries((), ()),
        "smi": Smi("", None, "", "nvidia-smi is not installed", ""),
        "modprobe_helper": False,
        "firmware": frozenset[str](),
        "packages": (),
        "automatic": Automatic(""),
        "persistenced": Daemon(installed=False, active=False, command=""),
    }
    return healthy_driver(**{**nothing, **changes})
