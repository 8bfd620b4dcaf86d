"""What came of trying CUDA in containers in: whether this host's GPUs really reach one, and by which path, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.cuda import Cuda
from lpxdoctor.facts.gpu import Gpus
from lpxdoctor.facts.passthrough import Trial

# Every way in which Docker or the toolkit may be known to be wrongly set up.
_CAUSES = (
    *("cuda.init-fails", "container.docker-not-answering", "container.docker-from-snap", "container.docker-desktop"),
    *("container.toolkit-missing", "container.toolkit-config-invalid", "container.daemon-not-restarted"),
    *("container.runtime-not-registered", "container.runtime-program-missing", "container.cgroups-closed-to-rootless"),
    *("container.cgroups-left-alone", "container.cdi-stale", "container.cdi-off", "container.ldconfig-missing"),
    "container.toolkit-before-cgroups",
)
# What to type for a known error, besides what stands in the Fix section.
_DO = {
    "cdi-off": 'add "features": {"cdi": true} to daemon.json, then: sudo systemctl restart docker',
    "gpu-hook-unknown": "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    "runtime-unknown": "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    "toolkit-program-missing": "sudo apt-get install --reinstall nvidia-container-toolkit",
    "cdi-vendor-unknown": "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
    "cdi-device-unknown": "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
    "cdi-path-missing": "sudo nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml",
    "ldconfig-missing": "sudo nvidia-ctk config --set nvidia-container-cli.ldconfig=@/sbin/ldconfig --in-place",
    "device-filter-refused": "upgrade libnvidia-container1 and nvidia-container-toolkit",
    "gpu-denied": "sudo ausearch -m avc -ts recent | grep nvidia",
}


def _trials(container: Container) -> tuple[Trial, ...]:
    _ = container.answering  # without one none was made
    if container.untried:
        raise NotApplicable(container.untried)
    skipped = [trial.skipped for trial in container.trials if trial.skipped]
    if skipped and not container.proven:
        raise NotApplicable(f"CUDA was not tried in a container: {skipped[0]}")
    return container.trials


@check(
    "container.gpu-not-visible",
    Severity.FAIL,
    layer="deployment",
    after=[*_CAUSES, "container.cuda-init-fails"],
    fix="container",
)
def gpu_not_visible(container: Container) -> Iterator[Finding]:
    """No GPU reaches a container by any path that Docker has.

    Why: each path was tried with a small image made of this host's own Python, which calls cuInit. None got there, so
        no engine in a container will.
    Fix: what each path said stands above, with what to type for the first known error among them.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    trials = _trials(container)
    if any(trial.works for trial in trials) or not trials:
        return
    known = [trial.known for trial in trials if trial.known]
    # What is not set up at all explains less than what is set up and broken.
    plain = ("gpu-hook-unknown", "runtime-unknown", "cdi-off", "cdi-device-unknown")
    telling = sorted(known, key=lambda match: match.name in plain)
    message = telling[0].meaning if telling else "no path hands a GPU over to a container"
    do = tuple(dict.fromkeys(_DO[match.name] for match in telling[:1] if match.name in _DO))
    yield Finding(message, seen=tuple(Seen(trial.label, trial.reason, trial.command) for trial in trials), do=do)


@check("container.cuda-init-fails", Severity.FAIL, layer="deployment", after=_CAUSES, fix="container")
def cuda_init_fails(container: Container, cuda: Cuda) -> Iterator[Finding]:
    """CUDA works on the host and does not start in a container, though Docker hands the GPU over.

    Why: the container has the GPU's device nodes and libraries, so nvidia-smi works in it, and cuInit fails. Mostly
        /dev/nvidia-uvm is missing in it or has the wrong number (error 999 or 3), or another libcuda is found first
        (error 803).
    Fix: compare ls -l /dev/nvidia-uvm on the host and in the container; write the CDI specification anew; try
        --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools. A toolkit 1.19.1 is to be replaced.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1967;
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/1934
    """
    trials = _trials(container)
    if cuda.error is not None:
        raise NotApplicable("CUDA does not start on the host itself")
    failed = [trial for trial in trials if trial.started and not trial.works]
    if failed and not any(trial.works for trial in trials):
        seen = (
            *(Seen(f"CUDA in a container by {trial.label}", trial.reason, trial.command) for trial in failed),
            Seen("CUDA on the host", f"works on {len(cuda.devices)} GPUs", cuda.library),
            *(
                Seen("/dev/nvidia-uvm on the host", f"{node.major}:{node.minor}", "/dev")
                for node in container.nodes
                if node.path == "/dev/nvidia-uvm"
            ),
        )
        yield Finding(f"{failed[0].reason} in a container, by {failed[0].label}", failed[0].label, seen)


@check("container.gpus-differ", Severity.FAIL, layer="deployment", after=["container.gpu-not-visible"], fix="container")
def gpus_differ(container: Container, gpus: Gpus) -> Iterator[Finding]:
    """A container that is given all GPUs sees others than the host has.

    Why: an engine that asks for all GPUs starts on fewer, or not at all. A CDI specification, or a setting of the
        runtime, leaves some out.
    Fix: for CDI write the specification anew; for the others look for NVIDIA_VISIBLE_DEVICES in the unit of Docker and
        for device lists in the toolkit's config.toml.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    trials = _trials(container)
    if any(gpu.mig and gpu.mig[0] for gpu in gpus.gpus if gpu.error is None):
        raise NotApplicable("with MIG on, CUDA sees one instance and not the GPUs")
    host = {gpu.uuid for gpu in gpus.gpus if gpu.error is None}
    for trial in trials:
        missing, strange = host - set(trial.uuids), set(trial.uuids) - host
        if trial.works and (missing or strange):
            seen = (
                Seen("host", f"{len(host)} GPUs", "NVML"),
                Seen(f"container by {trial.label}", f"{len(trial.uuids)} GPUs", trial.command),
                *(Seen("missing", uuid) for uuid in sorted(missing)),
                *(Seen("unknown to the host", uuid) for uuid in sorted(strange)),
            )
            yield Finding(f"{trial.label}: {len(trial.uuids)} of {len(host)} GPUs", trial.label, seen)


@check("container.gpus-flag-fails", Severity.INFO, layer="deployment", after=["container.gpu-not-visible"])
def gpus_flag_fails(container: Container) -> Iterator[Finding]:
    """GPUs reach containers here, but not by every way in which people ask for them.

    Why: --gpus goes by the toolkit's hook, or, from Docker 29.2 on and where there is a CDI specification, by CDI;
        other commands name the runtime or the CDI device. A command from a manual may take a way that is closed here.
    Fix: use the way that works. To have all of them install nvidia-container-toolkit, register its runtime and restart
        Docker.
    Source: https://github.com/moby/moby/pull/50228;
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    trials = _trials(container)
    works = [trial for trial in trials if trial.works]
    fails = [trial for trial in trials if trial.path == "--gpus" and not trial.works]
    if works and fails:
        seen = (
            *(Seen(trial.label, "works", trial.command) for trial in works),
            *(Seen(t.label, t.reason, t.command) for t in fails),
        )
        yield Finding(f"use {works[0].label}, not --gpus: {fails[0].reason}", seen=seen)
