"""Facts of Docker itself in: whether it answers, which one it is, how it is set up; what is wrong with it out."""

from collections.abc import Iterator

from packaging.version import Version

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts import daemon_json, toolkit
from lpxdoctor.facts.container import Container

_TAKES_MARKS = Version("23.0")  # the first Docker that skips a byte order mark in daemon.json

# --- does it answer ---------------------------------------------------------------------------------------------------


@check("container.docker-not-installed", Severity.INFO, layer="deployment", fix="container")
def docker_not_installed(container: Container) -> Iterator[Finding]:
    """There is no Docker on this host.

    Why: lpxdoctor rolls engines out as containers. A host that runs them in another way, under Kubernetes or straight
        from a virtual environment, needs no Docker, so this is only a note.
    Fix: install it from your distribution or from Docker: https://docs.docker.com/engine/install/
    Source: https://docs.docker.com/engine/install/
    """
    if container.silent and not container.installed:
        yield Finding("no Docker Engine is installed", seen=(Seen("socket", "none", container.silent),))


@check("container.docker-socket-denied", Severity.WARN, layer="deployment")
def docker_socket_denied(container: Container) -> Iterator[Finding]:
    """You may not ask Docker, so nothing about its containers could be judged.

    Why: Docker's socket belongs to root and the group docker. What it would have said is missing in this report.
    Fix: run lpxdoctor as root, or join the group and log in anew: sudo usermod -aG docker $USER. Members of that group
        are as good as root on this host.
    Source: https://docs.docker.com/engine/install/linux-postinstall/
    """
    if container.refused:
        yield Finding("Docker's socket is closed to you", seen=(Seen("socket", container.refused),))


@check("container.daemon-json-invalid", Severity.FAIL, layer="deployment", fix="container")
def daemon_json_invalid(container: Container) -> Iterator[Finding]:
    """Docker cannot start with its daemon.json.

    Why: dockerd reads the file once, when it starts. A Docker that runs has still read an older one: it stops for good
        at its next restart or at the next boot, with every container on it.
    Fix: repair the file, then check it: sudo dockerd --validate --config-file /etc/docker/daemon.json. `nvidia-ctk
        runtime configure --runtime=docker` changes only its own part of a file that is valid.
    Source: https://github.com/NVIDIA/nvidia-docker/issues/749; https://docs.docker.com/reference/cli/dockerd/
    """
    file = container.settings
    error = (file.error if file else "") or container.validation or ""
    if file and error and "specified both as a flag" not in error:
        seen = (Seen(file.path, error, "read by lpxdoctor" if file.error else "dockerd --validate"),)
        yield Finding(f"{file.path}: {error}", file.path, seen)
    elif file and file.marked and _takes_no_mark(container):
        yield Finding(
            f"{file.path}: it begins with a byte order mark, with which Docker starts from {_TAKES_MARKS} on",
            file.path,
            (Seen("Docker", container.version or container.silent),),
            (f"sudo sed -i '1s/^\\xef\\xbb\\xbf//' {file.path}",),
        )


def _takes_no_mark(container: Container) -> bool:
    """Tell whether this Docker ends over a byte order mark; one that does not answer is too old to check its file."""
    if container.daemon is None:
        return bool(container.silent) and container.validation is None
    return container.release is not None and container.release < _TAKES_MARKS


@check("container.option-set-twice", Severity.FAIL, layer="deployment", fix="container")
def option_set_twice(container: Container) -> Iterator[Finding]:
    """An option of Docker is set in daemon.json and on its command line, and Docker refuses to start with both.

    Why: dockerd does not say which of two settings wins, it ends. One that runs now has been started with an older
        file or command line; its next restart fails.
    Fix: keep one of the two. For "hosts" remove it from daemon.json, or take -H off the command line in a drop-in:
        sudo systemctl edit docker, with an empty ExecStart= line before the new one.
    Source: https://docs.docker.com/engine/daemon/troubleshoot/#configure-the-daemon-with-both-daemonjson-and-a-startup-script;
        https://github.com/NVIDIA/deepops/pull/351
    """
    if container.unit is None or container.settings is None:
        return
    for key in daemon_json.conflicts(container.settings, container.unit):
        on_disk, started = container.settings.values[key], " ".join(container.unit.options[key])
        seen = (Seen(key, str(on_disk), container.settings.path), Seen(key, started, container.unit.path))
        yield Finding(f'"{key}" is set in both places', key, seen)


@check(
    "container.docker-not-answering",
    Severity.FAIL,
    layer="deployment",
    after=["container.daemon-json-invalid", "container.option-set-twice"],
    fix="container",
)
def docker_not_answering(container: Container) -> Iterator[Finding]:
    """Docker is installed and does not answer.

    Why: no container can be started, and those that should run may be down.
    Fix: sudo systemctl start docker; where it does not stay up, its reason is in journalctl -u docker -n 50.
    Source: https://docs.docker.com/engine/daemon/troubleshoot/
    """
    if container.silent and (container.installed or "no answer" in container.silent):
        seen = (
            Seen("socket", container.silent),
            *(Seen("installed", path) for path in container.installed[:1]),
            *(Seen("a Docker of a user", path) for path in container.sockets if path.startswith("/run/user/")),
        )
        yield Finding(
            "Docker does not answer", seen=seen, do=("sudo systemctl start docker", "journalctl -u docker -n 50")
        )


@check("container.docker-is-podman", Severity.INFO, layer="deployment")
def docker_is_podman(container: Container) -> Iterator[Finding]:
    """What answers at Docker's socket is Podman.

    Why: Podman hands GPUs over by CDI alone, and has no runtimes to register. What lpxdoctor knows of Docker's settings
        does not hold for it.
    Fix: nothing, where that is meant. Try: podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi -L
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
    """
    if container.daemon and container.daemon.podman:
        seen = (Seen("version", container.version, container.daemon.server),)
        yield Finding("Podman answers in Docker's place", seen=seen)


# --- its settings -----------------------------------------------------------------------------------------------------


@check(
    "container.daemon-json-duplicate-key", Severity.WARN, layer="deployment", after=["container.daemon-json-invalid"]
)
def daemon_json_duplicate_key(container: Container) -> Iterator[Finding]:
    """A key stands twice in daemon.json, and Docker takes the last one without a word.

    Why: the settings under the first one do nothing. It happens when a tool or a person pastes a second "runtimes", and
        the runtime that was registered before is gone.
    Fix: put what belongs together under one key, then restart Docker.
    Source: https://github.com/NVIDIA/nvidia-docker/issues/761; tried with dockerd 28.5.2
    """
    if container.settings:
        for key in container.settings.duplicates:
            seen = (Seen("key", key, container.settings.path),)
            yield Finding(f'"{key}" stands more than once in {container.settings.path}', key, seen)


@check(
    "container.daemon-not-restarted",
    Severity.FAIL,
    layer="deployment",
    after=["host.no-gpu", "container.docker-not-answering", "container.daemon-json-invalid"],
    fix="container",
)
def daemon_not_restarted(container: Container) -> Iterator[Finding]:
    """Docker has not been restarted since it was set up for GPUs.

    Why: Docker reads daemon.json, and looks for the NVIDIA Container Toolkit, when it starts; a reload is not enough
        for either. Until then it says that it knows no runtime "nvidia", or cannot select a device driver.
    Fix: sudo systemctl restart docker, which stops containers unless live-restore is on. Then docker info lists it.
    Source: https://github.com/NVIDIA/deepops/issues/1109;
        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    live, file = container.docker, container.settings
    if container.hands_over:
        return
    runtimes = Seen("runtimes of the running Docker", ", ".join(sorted(live.runtimes)), "docker info")
    do = ("sudo systemctl restart docker", "docker info | grep -i -A1 runtimes")
    for name, program in (file.runtimes if file else {}).items():
        if "nvidia" in program and name not in live.runtimes and file:
            seen = (Seen("runtimes on disk", ", ".join(file.runtimes), file.path), runtimes)
            yield Finding(f'the running Docker does not know the runtime "{name}" of its file', name, seen, do)
    if file and file.cdi and not live.cdi_dirs:
        seen = (
            Seen("features.cdi", "true", file.path),
            Seen("CDI directories of the running Docker", "none", "docker info"),
        )
        yield Finding("CDI is on in the file and off in the running Docker", "cdi", seen, do)
    hook = container.programs.get(toolkit.HOOK)
    for trial in container.tried:
        if hook and trial.known and trial.known.name == "gpu-hook-unknown":
            seen = (Seen("hook", hook), Seen("Docker", trial.refusal, trial.command))
            yield Finding("the toolkit's hook is installed, and the running Docker has not seen it", "hook", seen, do)


@check("container.settings-not-live", Severity.WARN, layer="deployment", after=["container.daemon-not-restarted"])
def settings_not_live(container: Container) -> Iterator[Finding]:
    """The next restart of Docker will change how it runs: daemon.json says other things than the running Docker.

    Why: somebody changed the file and did not restart Docker, or restarted it with another file. Images, containers or
        GPUs may be gone after the next boot, when nobody thinks of this change any more.
    Fix: decide which is meant, make the file say it, and restart Docker at a time that suits you.
    Source: https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file
    """
    live, file = container.docker, container.settings
    if file is None or file.error:
        return
    pairs = (
        ("default-runtime", file.values.get("default-runtime"), live.default_runtime),
        ("data-root", file.values.get("data-root"), live.root_dir),
        ("native.cgroupdriver", file.cgroup_driver or None, live.cgroup_driver),
        ("live-restore", file.values.get("live-restore"), live.live_restore),
        ("features.cdi", file.cdi if live.cdi_dirs else None, True),
    )
    for name, on_disk, now in pairs:
        if on_disk is not None and on_disk != now:
            seen = (Seen(name, str(on_disk), file.path), Seen(name, str(now), "docker info"))
            yield Finding(f"{name}: {on_disk} on disk, {now} in the running Docker", name, seen)


@check(
    "container.runtime-program-missing",
    Severity.FAIL,
    layer="deployment",
    after=["container.docker-not-answering"],
    fix="container",
)
def runtime_program_missing(container: Container) -> Iterator[Finding]:
    """Docker's default runtime is a program that does not exist.

    Why: every container that names no runtime fails to start, GPU or not. It is what an uninstalled toolkit leaves
        behind: the packages go, and the entry in daemon.json stays.
    Fix: reinstall nvidia-container-toolkit, or take "default-runtime" and the runtime out of daemon.json and restart
        Docker.
    Source: https://github.com/NVIDIA/nvidia-container-runtime/issues/98
    """
    live = container.docker
    program = live.runtimes.get(live.default_runtime, "")
    name = program.rpartition("/")[2]
    # Where the listings look; a program elsewhere may well be there.
    looked = program == name or program.startswith(("/usr/bin/", "/usr/local/nvidia/toolkit/"))
    if name.startswith("nvidia-container-runtime") and looked and name not in container.programs:
        seen = (
            Seen("default runtime", f"{live.default_runtime} -> {program}", "docker info"),
            Seen("programs of the toolkit", ", ".join(container.programs) or "none", "/usr/bin/nvidia-c*"),
        )
        yield Finding(f"{program} is not on this host", live.default_runtime, seen)
