"""Save a container image: a reference in; what `docker load` takes, with the id that a host will know it by, out."""

import re
from pathlib import Path

import msgspec

from lpxdoctor.airgap.manifest import Image
from lpxdoctor.airgap.programs import said_by
from lpxdoctor.airgap.target import Target
from lpxdoctor.errors import SetupError


class _Inspected(msgspec.Struct, rename="pascal"):
    id: str
    architecture: str
    repo_digests: tuple[str, ...] | None = None


def fetch(reference: str, target: Target, directory: Path) -> Image:
    """Save an image that this machine's Docker Engine has, after pulling it where it has not.

    Raises:
        SetupError: no engine answers, a registry refuses, or the image is of another architecture.
    """
    try:
        found = _inspect(reference)
    except SetupError:
        pull = ("docker", "pull", "--quiet", "--platform", f"linux/{target.architecture}", reference)
        said_by(pull, f"The image {reference} is not on this machine and could not be pulled")
        found = _inspect(reference)
    if found.architecture != target.architecture:
        raise SetupError(
            f"The image {reference} is of {found.architecture}, and {target.name} of {target.architecture}.\n"
            f"Get the other: docker pull --platform linux/{target.architecture} {reference}"
        )
    directory.mkdir(parents=True, exist_ok=True)
    file = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', reference)}.tar"
    said_by(("docker", "save", reference), f"The image {reference} could not be saved", to=directory / file)
    source = next(iter(sorted(found.repo_digests or ())), "this machine")
    return Image(reference=reference, id=found.id, file=f"{directory.name}/{file}", source=source)


def _inspect(reference: str) -> _Inspected:
    told = said_by(("docker", "image", "inspect", reference), f"Docker does not know the image {reference}")
    return msgspec.json.decode(told, type=tuple[_Inspected, ...])[0]
