"""What a daemon-reload did to containers with a GPU in, where it was tried; which paths lose the GPU out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.reload import Reload


@check(
    "container.reload-lost-gpu",
    Severity.WARN,
    layer="deployment",
    after=["host.no-gpu", "container.docker-not-answering", "container.gpu-not-visible"],
    fix="container",
)
def reload_lost_gpu(reload: Reload) -> Iterator[Finding]:
    """A container lost its GPU at a systemctl daemon-reload: it was tried.

    Why: an engine that gets its GPU by this path dies at the next package upgrade or unit change, for each of them
        reloads systemd, which writes the container's device rules anew and leaves out what Docker does not know of.
    Fix: hand the GPU over by a path that kept it; CDI tells Docker of every node. Where there is none, links below
        /dev/char for the driver's nodes, or "native.cgroupdriver=cgroupfs" in daemon.json.
    Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html;
        https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    if not reload.asked:
        raise NotApplicable(
            "not asked for: it makes systemd reload; try it by: lpxdoctor check container.reload-lost-gpu"
        )
    if reload.skipped:
        raise NotApplicable(f"not tried: {reload.skipped}")
    kept = [path.label for path in reload.paths if path.opened and not path.lost]
    for path in reload.paths:
        if path.lost:
            seen = (
                *(Seen(node, "opened before, refused after", f"a container by {path.label}") for node in path.lost),
                *(Seen(label, "kept its GPU") for label in kept),
            )
            yield Finding(f"{path.label} loses the GPU" + (f"; use {kept[0]}" if kept else ""), path.label, seen)
