"""Facts of the CDI specifications in: whether they are there, can be read and fit this host's GPUs out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts import cdi
from lpxdoctor.facts.cdi import Spec
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.engine import Engines
from lpxdoctor.facts.gpu import Gpus

_GENERATE = "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
_UVM = "/dev/nvidia-uvm"


@check("container.cdi-missing", Severity.WARN, layer="deployment", after=["cuda.init-fails"], fix="container")
def cdi_missing(container: Container) -> Iterator[Finding]:
    """Docker has CDI on and nobody has written down the GPUs for it.

    Why: a CDI specification names the device nodes and libraries that make up a GPU. Without one, --device
        nvidia.com/gpu=all ends with "unresolvable CDI devices", and GPUs reach containers only by the toolkit's hook,
        which loses them at a daemon-reload.
    Fix: sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml. From the toolkit 1.18 on,
        nvidia-cdi-refresh.service does it at every boot: sudo systemctl enable --now nvidia-cdi-refresh.path
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
    """
    if not container.answering.cdi_dirs:
        raise NotApplicable("this Docker has no CDI, or has it off")
    if not container.gpu_specs and "nvidia-ctk" in container.programs and not container.proven:
        seen = (
            Seen("directories", ", ".join(container.answering.cdi_dirs), "docker info"),
            Seen("of nvidia.com/gpu", "none"),
        )
        yield Finding("no CDI specification of a GPU", seen=seen, do=(_GENERATE,))


@check("container.cdi-invalid", Severity.WARN, layer="deployment", after=["host.no-gpu"], fix="container")
def cdi_invalid(container: Container) -> Iterator[Finding]:
    """A file among the CDI specifications cannot be read.

    Why: Docker passes over such a file and says so only in its log. What it was to offer does not exist. A file may be
        sound and of a newer version of CDI than an older Docker or Podman knows.
    Fix: write it anew, or remove it: sudo nvidia-ctk cdi generate --output=FILE
    Source: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md; tried with Docker 28.5.2
    """
    for spec in container.specs:
        if spec.error:
            yield Finding(f"{spec.path}: {spec.error}", spec.path, (Seen(spec.path, spec.error),), (_GENERATE,))


@check(
    "container.cdi-stale",
    Severity.FAIL,
    layer="deployment",
    after=["driver.library-mismatch", "driver.device-nodes-missing", "driver.uvm-not-ready", "cuda.init-fails"],
    fix="container",
)
def cdi_stale(container: Container, driver: Driver, gpus: Gpus) -> Iterator[Finding]:
    """The CDI specification is stale: it describes other files or GPUs than this host has now.

    Why: it is a list that somebody made once. After a driver upgrade it names libraries that are gone; after a reboot
        the number of /dev/nvidia-uvm may be another one, and then nvidia-smi works in the container while cuInit fails
        with error 999; a GPU that was added is missing from "all".
    Fix: sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, then recreate the containers that were made
        with the old one. From the toolkit 1.18 on nvidia-cdi-refresh does it after each driver upgrade.
    Source: https://github.com/Igalia/webkit-container-sdk/issues/23; https://github.com/NVIDIA/NemoClaw/pull/4733;
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934
    """
    if not container.gpu_specs:
        raise NotApplicable("there is no CDI specification of a GPU")
    works = any(trial.path == "CDI" and trial.works for trial in container.tried)
    for spec in container.gpu_specs:
        differs = () if works else (*_other_driver(spec, driver), *_other_nodes(spec, container))
        seen = (*differs, *_other_gpus(spec, container, gpus))
        if seen:
            yield Finding(f"{spec.path} does not fit this host", spec.path, seen, (_GENERATE,))


def _other_driver(spec: Spec, driver: Driver) -> Iterator[Seen]:
    versions = spec.driver_versions
    if versions and driver.loaded and driver.loaded not in versions:
        yield Seen("driver in the specification", ", ".join(versions), spec.path)
        yield Seen("driver that is loaded", driver.loaded, "/proc/driver/nvidia/version")


def _other_nodes(spec: Spec, container: Container) -> Iterator[Seen]:
    here = {node.path: (node.major, node.minor) for node in container.nodes}
    for node in spec.nodes:
        numbers = here.get(node.path)
        if node.path.startswith("/dev/nvidia") and "/" not in node.path[len("/dev/") :] and numbers is None:
            yield Seen(node.path, "named, and not on this host", spec.path)
        elif numbers and node.major is not None and numbers != (node.major, node.minor):
            yield Seen(node.path, f"{node.major}:{node.minor} in {spec.path}, {numbers[0]}:{numbers[1]} on this host")
    if _UVM in here and spec.nodes and _UVM not in {node.path for node in spec.nodes}:
        yield Seen(_UVM, "on this host, and not in the specification: cuInit needs it", spec.path)


def _other_gpus(spec: Spec, container: Container, gpus: Gpus) -> Iterator[Seen]:
    strange = [uuid for uuid in spec.uuids if uuid not in {gpu.uuid for gpu in gpus.gpus if gpu.error is None}]
    for uuid in strange:
        yield Seen(uuid, "named, and no GPU of this host", spec.path)
    named = {node.path for node in spec.nodes}
    numbered = [node.path for node in container.nodes if node.path[len("/dev/nvidia") :].isdigit()]
    missing = [path for path in numbered if path not in named]
    if missing and "all" in spec.devices:
        yield Seen("GPUs that it leaves out", ", ".join(missing), spec.path)


@check("container.cdi-named-twice", Severity.WARN, layer="deployment", after=["host.no-gpu"], fix="container")
def cdi_named_twice(container: Container) -> Iterator[Finding]:
    """Two CDI specifications name the same GPU.

    Why: of /etc/cdi and /var/run/cdi the second wins, so the one that was written by hand does nothing, or becomes the
        one that counts at the next boot before the other is there. Of two in one directory Docker takes neither.
    Fix: keep the one that nvidia-cdi-refresh writes, /var/run/cdi/nvidia.yaml, and remove the other.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1239
    """
    twice = cdi.named_twice(container.specs)
    for files in dict.fromkeys(twice.values()):
        devices = [device for device, where in twice.items() if where == files and device.startswith(cdi.KIND)]
        if devices:
            seen = tuple(Seen("named in", path) for path in files)
            yield Finding(f"{', '.join(devices[:3])} in {len(files)} files", devices[0], seen)


@check("container.cdi-refresh-failed", Severity.WARN, layer="deployment", after=["cuda.init-fails"], fix="container")
def cdi_refresh_failed(container: Container) -> Iterator[Finding]:
    """The unit that keeps the CDI specification fresh does not do so.

    Why: without it the next driver upgrade makes the specification stale, and containers that are started after it
        fail. It fails at boot where it runs before the driver is loaded.
    Fix: see why it failed, then run it now and at each boot:
            journalctl -u nvidia-cdi-refresh -n 50
            sudo systemctl restart nvidia-cdi-refresh.service
            sudo systemctl enable --now nvidia-cdi-refresh.path
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1611;
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
    """
    refresh = container.refresh
    if refresh is None or not refresh.installed:
        raise NotApplicable("the toolkit's refresh unit is not on this host")
    if refresh.result not in ("", "success"):
        seen = (Seen("result", refresh.result, "systemctl show nvidia-cdi-refresh.service"),)
        yield Finding(f"its last run ended with {refresh.result}", "nvidia-cdi-refresh.service", seen)
    if not refresh.watching:
        seen = (Seen("state", "not active", "systemctl show nvidia-cdi-refresh.path"),)
        yield Finding("it does not watch for a new driver", "nvidia-cdi-refresh.path", seen)


@check("container.cdi-late-at-boot", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def cdi_late_at_boot(container: Container, engines: Engines) -> Iterator[Finding]:
    """An engine that starts with Docker at boot may find no CDI specification yet.

    Why: /var/run/cdi is empty after a boot until nvidia-cdi-refresh.service has run, and this release of the toolkit
        runs it last. Docker starts its containers before that, cannot resolve the GPU, and does not try again.
    Fix: sudo systemctl edit nvidia-cdi-refresh.service, with After= taken back and Before=docker.service; or a
        specification in /etc/cdi that is written anew after each driver upgrade.
    Source: https://github.com/NixOS/nixpkgs/issues/353059; nvidia-cdi-refresh.service of the toolkit 1.18 to 1.20
    """
    refresh = container.refresh
    if refresh is None or not refresh.installed or refresh.before_docker:
        raise NotApplicable("no refresh unit that runs behind Docker is on this host")
    kept = [spec.path for spec in container.specs if spec.path.startswith("/etc/cdi/") and spec.kind == cdi.KIND]
    for engine in engines.engines:
        by_cdi = "cdi" in engine.gpu_requests or ("gpus" in engine.gpu_requests and container.gpus_by_cdi)
        if by_cdi and engine.restart_policy in ("always", "unless-stopped") and not kept:
            seen = (
                Seen("restart policy", engine.restart_policy, f"docker inspect {engine.name}"),
                Seen("order", "not before docker.service", "systemctl show nvidia-cdi-refresh.service"),
            )
            yield Finding(f"{engine.name} starts with Docker and needs CDI", engine.name, seen)
