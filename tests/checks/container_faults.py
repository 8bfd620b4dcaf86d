"""What the tests of the container checks share: hosts by values, what surrounds them, and one fault for each check."""

from dataclasses import replace
from typing import Any

from lpxdoctor.facts.cdi import Node as CdiNode
from lpxdoctor.facts.cdi import Spec
from lpxdoctor.facts.container import Container, Disk
from lpxdoctor.facts.daemon_json import settings
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.packages import Package
from lpxdoctor.facts.reload import Reload, Survival
from lpxdoctor.facts.toolkit import Config
from tests.checks.judging import by_id, found
from tests.facts.builders_container import OLDER, REFRESHING, healthy, live, trial, tried
from tests.facts.builders_cuda import tried as cuda_tried
from tests.facts.builders_engine import engines
from tests.facts.builders_gpu import healthy_gpu, healthy_gpus, host_with
from tests.facts.given import only

DRIVER = only(Driver, loaded="580.159.04")
GPUS = healthy_gpus(healthy_gpu(uuid="GPU-11111111-2222-3333-4444-555555555555"))
KEPT = Reload(asked=True, skipped="", paths=(Survival("CDI", "", ("/dev/nvidia0",), ()),))
AROUND = (DRIVER, GPUS, engines(), host_with(), cuda_tried(), KEPT)
CHECKS = [id_ for id_ in by_id() if id_.startswith("container.")]

HOOK = {
    name: f"/usr/bin/{name}" for name in ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-ctk")
}
REGISTERED = settings("/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
NOTHING = tried("nothing-set-up")
SPEC = Spec(
    path="/var/run/cdi/nvidia.yaml",
    version="0.7.0",
    kind="nvidia.com/gpu",
    devices=("0", "GPU-11111111-2222-3333-4444-555555555555", "all"),
    nodes=(CdiNode("/dev/nvidia0", 195, 0), CdiNode("/dev/nvidia-uvm", 238, 0), CdiNode("/dev/nvidiactl")),
    mounts=("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",),
)
# A host where Docker is plain and the toolkit is there, as a manual leaves it.
TOOLKIT = healthy(
    daemon=live(runtimes={"runc": "runc", "nvidia": "nvidia-container-runtime"}, cgroup_driver="systemd"),
    settings=REGISTERED,
    programs=HOOK,
    packages=tuple(Package(name, "1.18.1-1") for name in ("nvidia-container-toolkit", "libnvidia-container1")),
    config=Config(path="/etc/nvidia-container-runtime/config.toml"),
    specs=(SPEC,),
    refresh=REFRESHING,
    trials=(trial("CDI"), trial("--gpus"), trial("--runtime")),
)
# And the same where nothing gets through.
REFUSED = replace(TOOLKIT, specs=(), daemon=live(OLDER), settings=None, trials=NOTHING)
STARTED = trial("--gpus", call="cuInit", code=999, name="CUDA_ERROR_UNKNOWN", uuids=())


def judged(id_: str, container: Container, *more: Any) -> list[str]:
    return [finding.message for finding in found(id_, *AROUND, container, *more)]


# One line a check: a host that has this fault, and what the finding must say.
FAULTS: dict[str, tuple[Container, str]] = {
    "container.docker-not-installed": (healthy(daemon=None, silent="no such file", installed=()), "no Docker Engine"),
    "container.docker-socket-denied": (healthy(refused="Permission denied"), "closed to you"),
    "container.daemon-json-invalid": (healthy(settings=settings("f", "{,}")), "f: line 1, column 2"),
    "container.docker-not-answering": (
        healthy(daemon=None, silent="/var/run/docker.sock: Connection refused", installed=("/usr/bin/dockerd",)),
        "does not answer",
    ),
    "container.docker-is-podman": (healthy(daemon=live(podman=True)), "Podman"),
    "container.daemon-json-duplicate-key": (
        healthy(settings=settings("f", '{"a": 1, "a": 2}')),
        '"a" stands more than',
    ),
    "container.daemon-not-restarted": (replace(REFUSED, settings=REGISTERED), 'does not know the runtime "nvidia"'),
    "container.settings-not-live": (
        healthy(settings=settings("f", '{"data-root": "/srv"}')),
        "data-root: /srv on disk",
    ),
    "container.runtime-program-missing": (
        healthy(daemon=live(default_runtime="nvidia", runtimes={"nvidia": "/usr/bin/nvidia-container-runtime"})),
        "/usr/bin/nvidia-container-runtime is not on this host",
    ),
    "container.gpus-for-everybody": (healthy(daemon=live(default_runtime="nvidia")), "default runtime is nvidia"),
    "container.disk-too-small": (healthy(disks=(Disk("/var/lib/docker", 9 << 30, 99 << 30),)), "9.0 GiB are free"),
    "container.proxy-unknown-to-docker": (healthy(proxies=("https_proxy",)), "not for Docker"),
    "container.docker-from-snap": (healthy(daemon=live(root_dir="/var/snap/docker/x"), trials=NOTHING), "no path"),
    "container.docker-desktop": (healthy(daemon=live(operating_system="Docker Desktop"), trials=NOTHING), "no path"),
    "container.cgroups-closed-to-rootless": (
        replace(REFUSED, daemon=live(security=("name=rootless",))),
        "no-cgroups is not set",
    ),
    "container.cgroups-left-alone": (
        replace(TOOLKIT, config=Config(path="c", no_cgroups=True), trials=(STARTED,)),
        "no-cgroups is set",
    ),
    "container.toolkit-missing": (healthy(specs=(), trials=NOTHING), "nvidia-container-toolkit is not on this host"),
    "container.runtime-not-registered": (REFUSED, 'no runtime "nvidia" is registered'),
    "container.toolkit-mixed": (
        healthy(
            packages=(Package("nvidia-container-toolkit", "1.18.1-1"), Package("libnvidia-container1", "1.17.8-1"))
        ),
        "differ",
    ),
    "container.toolkit-flawed": (
        healthy(packages=(Package("nvidia-container-toolkit", "1.16.2-1"),)),
        "1.16.2: a container",
    ),
    "container.toolkit-forerunner": (
        healthy(packages=(Package("nvidia-docker2", "2.13.0-1"),)),
        "nvidia-docker2 2.13.0-1",
    ),
    "container.toolkit-source-twice": (healthy(sources={"a.list": "/k/a.gpg", "b.list": ""}), "2 files"),
    "container.toolkit-config-invalid": (healthy(config=Config(path="c", error="line 3: no value")), "line 3"),
    "container.cdi-missing": (replace(TOOLKIT, specs=(), trials=NOTHING), "no CDI specification"),
    "container.cdi-invalid": (
        healthy(specs=(Spec(path="/etc/cdi/x.yaml", error="line 1"),)),
        "/etc/cdi/x.yaml: line 1",
    ),
    "container.cdi-named-twice": (
        healthy(specs=(SPEC, replace(SPEC, path="/etc/cdi/nvidia.yaml"))),
        "nvidia.com/gpu=0, nvidia.com/gpu=GPU-11111111-2222-3333-4444-555555555555, nvidia.com/gpu=all in 2 files",
    ),
    "container.cdi-refresh-failed": (healthy(refresh=replace(REFRESHING, result="exit-code")), "ended with exit-code"),
    "container.gpu-not-visible": (healthy(trials=tried("stale")), "the CDI specification is stale: it names"),
    "container.cuda-init-fails": (
        healthy(trials=tried("wrong-uvm")),
        "CUDA_ERROR_UNKNOWN (999) in a container, by CDI",
    ),
    "container.gpus-differ": (healthy(trials=(trial("CDI", uuids=("GPU-0", "GPU-9")),)), "CDI: 2 of 1 GPUs"),
    "container.gpus-flag-fails": (healthy(), "use CDI, not --gpus: could not select device driver"),
}
