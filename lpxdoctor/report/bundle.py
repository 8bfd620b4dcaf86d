"""A bundle, for people: its manifest in, text out."""

from collections.abc import Iterable

from lpxdoctor.airgap.apply import Applied
from lpxdoctor.airgap.create import Made
from lpxdoctor.airgap.manifest import Item, Manifest

_MIB = 1 << 20


def made(bundle: Made) -> str:
    """Return what was written, and how to go on."""
    digest = bundle.manifest_sha256
    return "\n".join(
        (
            f"{bundle.file}: {_summary(bundle.manifest)}",
            f"  manifest  sha256 {digest}",
            f"  next      carry it there: lpxdoctor bundle apply {bundle.file.name} -i HOSTS --sha256 {digest}",
        )
    )


def shown(manifest: Manifest, digest: str, *, verified: bool) -> str:
    """Return everything that a bundle holds."""
    what = "every hash was compared" if verified else "hashes not compared: --verify"
    return "\n".join(
        (
            _summary(manifest),
            f"made {manifest.created} by lpxdoctor {manifest.lpxdoctor}; {what}",
            f"manifest sha256 {digest}",
            f"playbooks: {', '.join(manifest.words) or 'none'}",
            f"installed first: {', '.join(manifest.install) or 'nothing'}",
            *_listed("packages", manifest.packages),
            *_listed("wheels", manifest.wheels),
            *_listed("collections", manifest.collections),
            *([] if not manifest.images else ["images"]),
            *(f"  {image.reference}  {image.id}  {image.source}" for image in manifest.images),
        )
    )


def applied(done: Applied) -> str:
    """Return what became of the hosts, and how a deployment names the images that came along."""
    lines = [
        f"{host}: {f'{count} changes' if count else 'nothing to change'}"
        for host, count in sorted(done.changed.items())
    ]
    images = [f"image {image.reference}: deploy it with --image {image.id}" for image in done.manifest.images]
    return "\n".join((*lines, *images))


def _summary(manifest: Manifest) -> str:
    size = sum(file.size for file in manifest.files.values())
    target = manifest.target
    return (
        f"for {target.distribution} {target.version} ({target.architecture}): {len(manifest.packages)} packages, "
        f"{len(manifest.wheels)} wheels, {len(manifest.collections)} collections, {len(manifest.images)} images, "
        f"{size / _MIB:,.0f} MiB unpacked"
    )


def _listed(title: str, items: Iterable[Item]) -> list[str]:
    return [title, *(f"  {item.name} {item.version}  {item.source}" for item in items)]
