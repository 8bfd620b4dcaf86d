"""Facts of what surrounds Docker in: disks, proxies, security modules; what is in its containers' way out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.container import PROXIES, Container
from lpxdoctor.facts.engine import Engines
from lpxdoctor.facts.host import Host, log_matches
from lpxdoctor.policy import Policy

_GIB = 1 << 30


@check("container.disk-too-small", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def disk_too_small(container: Container, engines: Engines, policy: Policy) -> Iterator[Finding]:
    """There is too little room below Docker's directory for an engine's image.

    Why: a CUDA image of vLLM takes some 25 GiB unpacked, and its layers lie there twice while it is pulled. A pull that
        fills the disk takes the running containers with it. With Docker 29's own image store the images lie below
        /var/lib/containerd, which may be another disk than the one that was sized for Docker.
    Fix: docker system df shows what is used, docker image prune frees what is not; else move "data-root" in
        daemon.json, or containerd's root, to a larger disk.
    Source: https://github.com/vllm-project/vllm/issues/17163; https://docs.docker.com/engine/release-notes/29/
    """
    _ = container.answering  # without one nothing is pulled
    if any(engine.wants_gpu for engine in engines.engines):
        raise NotApplicable("an engine's image is on this host already")
    for disk in container.disks:
        if disk.free_bytes < policy.limits.image_disk_gib * _GIB:
            seen = (
                Seen("free", f"{disk.free_bytes / _GIB:.1f} GiB of {disk.total_bytes / _GIB:.1f}", disk.path),
                Seen("wanted", f"{policy.limits.image_disk_gib:g} GiB", "policy.toml, image_disk_gib"),
            )
            yield Finding(
                f"{disk.free_bytes / _GIB:.1f} GiB are free in {disk.path}", disk.path, seen, ("docker system df",)
            )


@check("container.proxy-unknown-to-docker", Severity.INFO, layer="deployment")
def proxy_unknown_to_docker(container: Container) -> Iterator[Finding]:
    """This host reaches the network through a proxy, and Docker was not told.

    Why: dockerd pulls images itself and knows nothing of a login's variables. Where the proxy is the only way out, a
        pull ends with a time-out, while curl in a shell works.
    Fix: set "proxies" in daemon.json, or Environment=HTTPS_PROXY=... in a drop-in of docker.service, and restart it.
    Source: https://docs.docker.com/engine/daemon/proxy/
    """
    live = container.answering
    if container.proxies and not live.proxy:
        seen = (
            Seen("for logins", ", ".join(container.proxies), PROXIES.path),
            Seen("for Docker", "none", "docker info"),
        )
        yield Finding("a proxy is set for logins and not for Docker", seen=seen)


@check("container.security-denials", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def security_denials(container: Container, host: Host) -> Iterator[Finding]:
    """SELinux or AppArmor has kept a container from the GPU.

    Why: the program in the container sees "Insufficient Permissions" from NVML, or no GPU at all, though the device
        nodes are there and their modes are right.
    Fix: find the rule: sudo ausearch -m avc -ts recent | grep nvidia. With SELinux, container-selinux with the boolean
        container_use_devices is the narrow way; setting SELinux to permissive is not.
    Source: https://github.com/NVIDIA/nvidia-container-toolkit/issues/33;
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/210
    """
    _ = container.answering  # without one there is no container
    denials = log_matches(host.kernel_log, r"(?:avc:\s+denied|apparmor=\"DENIED\").*nvidia")
    if denials:
        yield Finding(f"{len(denials)} denials name nvidia", seen=(Seen("last", denials[-1].strip()[:300], "dmesg"),))
