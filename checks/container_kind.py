"""Which kind of Docker answers in; what that kind keeps its containers from out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.container import Container


@check("container.docker-from-snap", Severity.FAIL, layer="deployment", after=["cuda.init-fails"])
def docker_from_snap(container: Container) -> Iterator[Finding]:
    """Docker comes from a snap, whose confinement hides the GPUs.

    Why: the snap sees a file system of its own. Its NVIDIA support was made for Ubuntu Core, and on other systems the
        toolkit in it does not find libnvidia-ml.so.1, though nvidia-smi works on the host.
    Fix: sudo snap remove docker, then install docker-ce or docker.io with apt, and nvidia-container-toolkit. Images and
        volumes of the snap lie below /var/snap/docker and are not taken along.
    Source: https://github.com/canonical/docker-snap/issues/148; https://github.com/NVIDIA/nvidia-docker/issues/1637
    """
    live = container.docker
    if live.flavor == "snap" and container.trials and not container.proven:
        refusal = Seen("Docker", container.trials[0].reason, container.trials[0].command)
        yield Finding(
            "no path hands a GPU over to a container", seen=(Seen("root", live.root_dir, "docker info"), refusal)
        )


@check("container.docker-desktop", Severity.FAIL, layer="deployment", after=["cuda.init-fails"])
def docker_desktop(container: Container) -> Iterator[Finding]:
    """Containers run in Docker Desktop's virtual machine, which has no GPU.

    Why: on Linux, Desktop starts its containers in a virtual machine of its own, and the host's GPUs are not handed to
        it. On Windows with WSL 2 they are.
    Fix: docker context use default, with Docker Engine installed beside Desktop.
    Source: https://docs.docker.com/desktop/features/gpu/
    """
    live = container.docker
    if live.flavor == "desktop" and container.trials and not container.proven:
        yield Finding(
            "no path hands a GPU over to a container", seen=(Seen("Docker", live.operating_system, live.server),)
        )


@check("container.cgroups-closed-to-rootless", Severity.FAIL, layer="deployment", after=["cuda.init-fails"])
def cgroups_closed_to_rootless(container: Container) -> Iterator[Finding]:
    """Docker runs without root, and the toolkit is told to do what only root can.

    Why: the toolkit's hook writes the container's device cgroup, and a rootless Docker may not. Every GPU container
        then fails with a mount error about devices.allow, or about device rules.
    Fix: sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place, which holds for all of this host's
        Dockers; or hand GPUs over by CDI, which needs no hook.
    Source: https://github.com/NVIDIA/nvidia-docker/issues/1155;
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html (rootless mode)
    """
    live, config = container.docker, container.config
    if live.rootless and config and not config.no_cgroups and not container.hands_over:
        seen = (Seen("Docker", "rootless", "docker info"), Seen("no-cgroups", "false", config.path))
        yield Finding("no-cgroups is not set for a rootless Docker", seen=seen)


@check("container.cgroups-left-alone", Severity.FAIL, layer="deployment", after=["cuda.init-fails"])
def cgroups_left_alone(container: Container) -> Iterator[Finding]:
    """The toolkit is told to leave cgroups alone, and Docker runs as root.

    Why: no-cgroups is for rootless Docker. As root the kernel does enforce device cgroups, nobody opens them for the
        GPU, and NVML in the container ends with "Unknown Error" or "Insufficient Permissions".
    Fix: sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/381
    """
    live, config = container.docker, container.config
    hooked = [trial for trial in container.tried if trial.path != "CDI" and trial.started]
    if config and config.no_cgroups and not live.rootless and hooked and not container.proven:
        seen = (
            Seen("no-cgroups", "true", config.path),
            Seen("CUDA in a container", hooked[0].reason, hooked[0].command),
        )
        yield Finding("no-cgroups is set for a Docker that runs as root", seen=seen)


@check("container.gpus-for-everybody", Severity.INFO, layer="deployment", after=["host.no-gpu"])
def gpus_for_everybody(container: Container) -> Iterator[Finding]:
    """Any image can take all GPUs of this host without being given one.

    Why: with the NVIDIA runtime as Docker's default, NVIDIA_VISIBLE_DEVICES=all inside an image is enough. CUDA's own
        images set it. Whoever may start a container here may use, and fill, every GPU.
    Fix: where that is not meant, set "default-runtime" back to runc and hand GPUs over by --device nvidia.com/gpu=N, or
        set accept-nvidia-visible-devices-envvar-when-unprivileged = false in the toolkit's config.toml.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
    """
    live = container.docker
    if "nvidia" in live.default_runtime:
        yield Finding(
            f"Docker's default runtime is {live.default_runtime}",
            seen=(Seen("default runtime", live.default_runtime, "docker info"),),
        )
