"""A bundle in, and what became of the hosts that got it; text or JSON of schema 1 out."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from lpxdoctor.airgap.apply import Applied
from lpxdoctor.airgap.create import Made
from lpxdoctor.airgap.manifest import Item, Manifest
from lpxdoctor.report.encoding import pretty

_MIB = 1 << 20


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, as create wrote it or show found it.

    manifest_sha256 is what apply takes as --sha256. verified: whether every hash was compared with what is in the file.
    """

    schema: Literal[1] = 1
    file: str
    manifest_sha256: str
    verified: bool
    manifest: Manifest


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host, and how many tasks changed something on it."""

    host: str
    changed: int


class LoadedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An image that the hosts have now; id is what --image of deploy takes there."""

    reference: str
    id: str


class AppliedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the hosts."""

    schema: Literal[1] = 1
    hosts: tuple[HostDocument, ...]
    images: tuple[LoadedDocument, ...]


def to_json(file: Path, manifest: Manifest, digest: str, *, verified: bool) -> str:
    """Return a bundle as JSON text; digest is its manifest's."""
    return pretty(Document(file=str(file), manifest_sha256=digest, verified=verified, manifest=manifest))


def applied_json(done: Applied) -> str:
    """Return what became of the hosts as JSON text."""
    hosts = tuple(HostDocument(host=host, changed=count) for host, count in sorted(done.changed.items()))
    images = tuple(LoadedDocument(reference=image.reference, id=image.id) for image in done.manifest.images)
    return pretty(AppliedDocument(hosts=hosts, images=images))


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
