"""Facts of the NVIDIA Container Toolkit and of Docker's kind in: what keeps the one from the other out."""

from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts import toolkit
from lpxdoctor.facts.container import CHAR_LINKS, Container
from lpxdoctor.facts.driver import Driver
from lpxdoctor.facts.engine import Engines
from lpxdoctor.knowledge import container as releases

# --- the toolkit ------------------------------------------------------------------------------------------------------


@check(
    "container.toolkit-missing",
    Severity.FAIL,
    layer="deployment",
    after=["host.no-gpu", "container.docker-not-answering"],
    fix="container",
)
def toolkit_missing(container: Container) -> Iterator[Finding]:
    """The NVIDIA Container Toolkit is not installed, and nothing else hands GPUs over to containers.

    Why: Docker itself knows nothing of GPUs. Without the toolkit, or a CDI specification that somebody wrote, docker
        run --gpus all ends with: could not select device driver "" with capabilities: [[gpu]].
    Fix: install nvidia-container-toolkit from NVIDIA's repository, then type:
            sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    _ = container.docker  # without it there is nothing to hand GPUs to
    if (
        container.hands_over
        or container.gpu_specs
        or toolkit.HOOK in container.programs
        or toolkit.RUNTIME in container.programs
    ):
        return
    seen = (
        Seen("packages", "none of the toolkit", "dpkg-query, rpm"),
        Seen("programs", ", ".join(container.programs) or "none", "/usr/bin/nvidia-c*"),
        Seen("CDI specifications", "none of nvidia.com/gpu", "/etc/cdi, /var/run/cdi"),
        *(Seen("Docker", trial.refusal, trial.command) for trial in container.tried[:1]),
    )
    yield Finding("nvidia-container-toolkit is not on this host", seen=seen)


@check(
    "container.runtime-not-registered",
    Severity.FAIL,
    layer="deployment",
    after=["cuda.init-fails", "container.toolkit-missing", "container.daemon-not-restarted"],
    fix="container",
)
def runtime_not_registered(container: Container) -> Iterator[Finding]:
    """The toolkit is installed and Docker was never told of it.

    Why: the packages (nvidia-container-toolkit) alone change nothing in Docker. Somebody has to register the runtime
        "nvidia" in daemon.json, or write a CDI specification, and restart Docker; so with containerd and CRI-O.
    Fix: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker, with containerd
        --runtime=containerd and its restart.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/150
    """
    live = container.docker
    on_disk = dict(container.settings.runtimes) if container.settings else {}
    if container.hands_over or any("nvidia" in program for program in (*live.runtimes.values(), *on_disk.values())):
        return
    seen = (
        Seen("runtimes that Docker knows", ", ".join(sorted(live.runtimes)), "docker info"),
        Seen(
            "runtimes on disk",
            ", ".join(on_disk) or "none",
            container.settings.path if container.settings else "no daemon.json",
        ),
        Seen("toolkit", str(container.toolkit or "no package"), container.programs.get(toolkit.RUNTIME, "")),
    )
    yield Finding('no runtime "nvidia" is registered with Docker', seen=seen)


@check("container.toolkit-mixed", Severity.WARN, layer="deployment", after=["host.no-gpu"], fix="container")
def toolkit_mixed(container: Container) -> Iterator[Finding]:
    """The toolkit's packages are of different versions.

    Why: its programs and its library are released together and call each other by private interfaces. A half upgrade
        works until a GPU container starts.
    Fix: install one version of all four: nvidia-container-toolkit, nvidia-container-toolkit-base,
        libnvidia-container-tools, libnvidia-container1.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    found = toolkit.of_toolkit(container.packages)
    if len({package.version for package in found}) > 1:
        yield Finding(
            "packages of the toolkit differ", seen=tuple(Seen(p.name, p.version, "dpkg-query, rpm") for p in found)
        )


@check("container.toolkit-flawed", Severity.WARN, layer="deployment", after=["host.no-gpu"], fix="container")
def toolkit_flawed(container: Container) -> Iterator[Finding]:
    """This release of the toolkit has a known flaw.

    Why: what is wrong with it is named below. A flaw of security means that an image from elsewhere can reach the host.
    Fix: upgrade nvidia-container-toolkit and its three companions to the newest release, then restart Docker.
    Source: https://nvidia.custhelp.com/app/answers/detail/a_id/5659;
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/1967
    """
    have = container.toolkit
    for flaw in releases.flaws() if have else ():
        # A release that works on some hosts and not on others is judged by the trial.
        if have and flaw.has(have) and flaw.sure and not (flaw.kind == "function" and container.proven):
            seen = (
                Seen("nvidia-container-toolkit", str(have), "dpkg-query, rpm"),
                Seen("known", flaw.what, flaw.source),
            )
            yield Finding(f"{have}: {flaw.what}", f"toolkit {have}", seen)


@check("container.toolkit-forerunner", Severity.INFO, layer="deployment", after=["host.no-gpu"])
def toolkit_forerunner(container: Container) -> Iterator[Finding]:
    """Packages of the toolkit's forerunners are left on this host.

    Why: nvidia-docker2 and nvidia-container-runtime bring a daemon.json and a repository of their own. They are no
        longer maintained, and they hold the toolkit back at an upgrade.
    Fix: sudo apt-get remove nvidia-docker2 nvidia-container-runtime, after nvidia-container-toolkit is installed.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    for package in toolkit.legacy(container.packages):
        yield Finding(
            f"{package.name} {package.version} is installed",
            package.name,
            (Seen(package.name, package.version, "dpkg-query, rpm"),),
        )


@check("container.toolkit-source-twice", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def toolkit_source_twice(container: Container) -> Iterator[Finding]:
    """The toolkit's repository stands in apt's sources twice, with different keys.

    Why: apt then refuses to read any repository: Conflicting values set for option Signed-By. Nothing on this host is
        upgraded until it is put right, security fixes among it.
    Fix: keep /etc/apt/sources.list.d/nvidia-container-toolkit.list and remove the others, then sudo apt-get update.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    if len(set(container.sources.values())) > 1:
        seen = tuple(Seen("key", key or "none", path) for path, key in container.sources.items())
        yield Finding(f"{len(container.sources)} files name it", seen=seen)


@check("container.toolkit-config-invalid", Severity.FAIL, layer="deployment", after=["host.no-gpu"], fix="container")
def toolkit_config_invalid(container: Container) -> Iterator[Finding]:
    """The toolkit cannot read its config.toml.

    Why: its hook and its runtime both end with an error before a container starts.
    Fix: sudo nvidia-ctk config --in-place writes it anew; the old file is to be kept aside first.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit
    """
    if container.config and container.config.error:
        yield Finding(
            container.config.error, container.config.path, (Seen(container.config.path, container.config.error),)
        )


# --- what a running container may lose --------------------------------------------------------------------------------


@check("container.reload-loses-gpus", Severity.WARN, layer="deployment", after=["host.no-gpu"], fix="container")
def reload_loses_gpus(container: Container, engines: Engines) -> Iterator[Finding]:
    """A running engine would lose its GPUs at the next systemctl daemon-reload.

    Why: the toolkit's hook opens the device cgroup behind Docker's back. With the systemd cgroup driver, systemd writes
        the rules anew at each daemon-reload, which every package upgrade does, and leaves the GPU out. The engine dies
        with "Unknown Error" from NVML while the host is fine. A restart of the container brings the GPUs back.
    Fix: hand GPUs over by CDI (--device nvidia.com/gpu=all), which tells Docker of every device node; or pass each
        /dev/nvidia* node by --device. "native.cgroupdriver=cgroupfs" in daemon.json is the last resort.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/48;
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    if container.docker.cgroup_driver != "systemd":
        return
    for engine in engines.engines:
        hooked = ("gpus" in engine.gpu_requests and container.gpus_by_cdi is False) or (
            "runtime" in engine.gpu_requests and container.runtime_by_hook
        )
        if engine.up and hooked and not {"cdi", "device"} & set(engine.gpu_requests):
            seen = (
                Seen("GPUs by", ", ".join(engine.gpu_requests), f"docker inspect {engine.name}"),
                Seen("cgroup driver", "systemd", "docker info"),
                Seen("links of device numbers", str(len(container.char_links)), CHAR_LINKS.pattern),
            )
            yield Finding(f"{engine.name} got its GPUs through the toolkit's hook", engine.name, seen)


@check("container.device-links-missing", Severity.INFO, layer="deployment", after=["host.no-gpu"], fix="container")
def device_links_missing(container: Container, driver: Driver) -> Iterator[Finding]:
    """The GPU's device numbers have no links in /dev/char.

    Why: with the systemd cgroup driver some versions of runc allow a device to systemd by /dev/char/MAJOR:MINOR. Where
        that link is missing the rule is dropped, and a container loses the GPU at a daemon-reload even when it was
        handed over by CDI or --device. Drivers from 535 on make the links themselves.
    Fix: sudo nvidia-ctk system create-dev-char-symlinks --create-all, and the udev rule that NVIDIA describes with it.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    live = container.docker
    numbers = [node for node in container.nodes if node.major == 195]
    if releases.has("links-device-numbers", knowledge.version(driver.loaded)) is not False:
        return
    if live.cgroup_driver == "systemd" and numbers and not container.char_links:
        seen = (Seen("device nodes", str(len(numbers)), "/dev/nvidia*"), Seen("links", "none", CHAR_LINKS.pattern))
        yield Finding("no link in /dev/char leads to a GPU", seen=seen)
