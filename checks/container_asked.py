"""What came of asking Docker for GPUs in; settings and releases of Docker and the toolkit that forbid it, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.container import Container
from lpxdoctor.facts.passthrough import Trial
from lpxdoctor.knowledge import container as releases


def _refused(container: Container, *names: str) -> Trial | None:
    """Return the first trial that ended with a known error of these names, None where a path works or none did."""
    if container.proven:
        return None
    return next((trial for trial in container.tried if trial.known and trial.known.name in names), None)


@check("container.cdi-off", Severity.FAIL, layer="deployment", after=["cuda.init-fails"], fix="container")
def cdi_off(container: Container) -> Iterator[Finding]:
    """Docker has CDI switched off, and is asked for a CDI device.

    Why: --device nvidia.com/gpu=all names a device of the Container Device Interface. Docker from 25 to 28.2 knows it
        only with "features": {"cdi": true} in daemon.json, and from 28.3 on by default; a rootless Docker reads a
        daemon.json of its own. Without it the answer is: could not select device driver "cdi".
    Fix: put "features": {"cdi": true} into the daemon.json of that very daemon (/etc/docker/daemon.json, rootless
        ~/.config/docker/daemon.json), see that nvidia-ctk cdi list names nvidia.com/gpu=all, and restart it:
        sudo systemctl restart docker, or systemctl --user restart docker.
    Source: https://docs.docker.com/reference/cli/dockerd/#enable-cdi-devices;
        https://github.com/NixOS/nixpkgs/issues/339999
    """
    live, refused = container.answering, _refused(container, "cdi-off")
    if refused and container.gpu_specs and not live.cdi_dirs:
        on_disk = container.settings.cdi if container.settings else None
        seen = (
            Seen("Docker", refused.refusal, refused.command),
            Seen("version", live.version, live.server),
            Seen("features.cdi", "not set" if on_disk is None else str(on_disk).lower(), "daemon.json"),
        )
        yield Finding("GPUs are written down for CDI, and this Docker has CDI off", seen=seen)


@check("container.ldconfig-missing", Severity.FAIL, layer="deployment", after=["cuda.init-fails"], fix="container")
def ldconfig_missing(container: Container) -> Iterator[Finding]:
    """The toolkit is told to run an ldconfig that this host does not have.

    Why: its hook updates the loader's cache in each container with the host's ldconfig. Ubuntu's is
        /sbin/ldconfig.real, that of other distributions /sbin/ldconfig; a config.toml that was copied names the wrong
        one.
    Fix: sudo nvidia-ctk config --set nvidia-container-cli.ldconfig=@/sbin/ldconfig --in-place
    Source: https://github.com/NVIDIA/nvidia-container-toolkit
    """
    _ = container.answering  # without one there is nothing to ask
    refused = _refused(container, "ldconfig-missing")
    if refused and refused.known:
        where = container.config.path if container.config else "no config.toml"
        yield Finding(refused.known.meaning, where, (Seen("Docker", refused.refusal, refused.command),))


@check(
    "container.toolkit-before-cgroups", Severity.FAIL, layer="deployment", after=["cuda.init-fails"], fix="container"
)
def toolkit_before_cgroups(container: Container) -> Iterator[Finding]:
    """The NVIDIA Container Toolkit is older than the cgroups of this host.

    Why: with cgroup v2 devices are allowed by a program in the kernel and no longer by a file. libnvidia-container
        before 1.8 looks for the file and says "cgroup subsystem devices not found"; later ones stumbled over the
        programs of newer kernels.
    Fix: upgrade nvidia-container-toolkit, libnvidia-container-tools and libnvidia-container1 together from NVIDIA's
        repository and restart Docker; or hand GPUs over by CDI, which leaves the rules to Docker. Starting the kernel
        with systemd.unified_cgroup_hierarchy=0 (cgroup v1) is the last resort.
    Source: https://github.com/pop-os/beta/issues/289; https://github.com/NVIDIA/nvidia-container-toolkit/issues/396
    """
    live, refused = container.answering, _refused(container, "device-filter-refused")
    old = releases.has("cgroup-v2", container.toolkit) is False and live.cgroup_version == "2"
    if refused or (old and not container.proven and not container.has_cdi):
        seen = (
            Seen("toolkit", str(container.toolkit or "not known"), "dpkg-query, rpm"),
            Seen("cgroup version", live.cgroup_version, "docker info"),
            *((Seen("Docker", refused.refusal, refused.command),) if refused else ()),
        )
        yield Finding("it cannot write this kernel's device rules", seen=seen)
