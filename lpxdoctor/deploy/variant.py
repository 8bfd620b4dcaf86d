"""Which pinned engine a host gets: its driver and GPUs in, a variant with the reason, or a refusal, out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.errors import DeployError, UsageError
from lpxdoctor.knowledge import images, verdict
from lpxdoctor.knowledge.images import Built, Catalogue, Image
from lpxdoctor.knowledge.verdict import Card, Verdict

CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class GpuHost:
    """What the choice needs to know of a host."""

    driver: str | None  # "580.95.05", None where nvidia-smi did not say
    cards: tuple[tuple[str, str], ...]  # name and compute capability of each GPU: ("NVIDIA H200", "9.0")
    cdi: bool  # whether its Docker Engine hands out nvidia.com/gpu devices by CDI
    on_bus: int  # NVIDIA GPUs on the PCI bus
    error: str | None = None  # why nvidia-smi did not say


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An engine for a host, and why this one."""

    variant: Image | Built
    reason: str
    arguments: tuple[str, ...]  # those of the variant, and what the host's GPUs need besides
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    own_image: str | None = None  # the user's, in place of the variant's

    @property
    def reference(self) -> str:
        """Return what Docker pulls or has: the digest alone, for a tag beside it would only be ignored."""
        if self.own_image:
            return self.own_image
        if isinstance(self.variant, Built):
            return self.variant.tag
        return f"{self.variant.tag.rpartition(':')[0]}@{self.variant.digest}"


def catalogue() -> Catalogue:
    """Return the variants that came with this version."""
    return images.load_all()


def variants(catalogue: Catalogue) -> tuple[Image | Built, ...]:
    """Return all variants, preferred first."""
    return (*catalogue.images, *catalogue.built)


def choose(host: GpuHost, catalogue: Catalogue, wanted: str | None = None, own_image: str | None = None) -> Choice:
    """Return the first variant that the host can run, or the one asked for; an image of the user's is started like it.

    Raises:
        UsageError: there is no variant of that name.
        DeployError: none fits, or it cannot be known; the message says what to do.
    """
    chosen = _named(host, catalogue, wanted) if wanted is not None else _first(host, catalogue)
    return replace(chosen, own_image=own_image)


def _first(host: GpuHost, catalogue: Catalogue) -> Choice:
    if host.driver is None:
        return _without_driver(host, catalogue)
    found = verdict.first_that_runs(catalogue.images, host.driver, _cards(host))
    if found is None:
        raise DeployError(_refusal(host, host.driver, catalogue))
    image, judged = found
    return _image(image, host, catalogue, f"driver {host.driver} and CUDA {image.cuda}: {judged.way.value}", judged)


def named(catalogue: Catalogue, wanted: str) -> Image | Built:
    """Return the variant of a name; UsageError where there is none."""
    by_name = {variant.name: variant for variant in variants(catalogue)}
    if wanted not in by_name:
        raise UsageError(f"There is no variant {wanted}.\nThere are: {', '.join(by_name)}.")
    return by_name[wanted]


def _named(host: GpuHost, catalogue: Catalogue, wanted: str) -> Choice:
    variant = named(catalogue, wanted)
    if isinstance(variant, Built):
        return _built(variant, "asked for")
    judged = verdict.of_image(variant, host.driver, _cards(host)) if host.driver else None
    return _image(variant, host, catalogue, "asked for", judged)


def _without_driver(host: GpuHost, catalogue: Catalogue) -> Choice:
    if host.on_bus:
        gpus = f"{host.on_bus} NVIDIA GPU{'s' if host.on_bus > 1 else ''}"
        raise DeployError(
            f"{gpus} on the PCI bus and no driver that answers: {host.error}.\n"
            "Run lpxdoctor check there: it names what is wrong. To serve from the CPU all the same: --variant cpu"
        )
    return _built(next(one for one in catalogue.built if one.name == CPU), "no NVIDIA GPU on the PCI bus")


def _built(variant: Built, reason: str) -> Choice:
    return Choice(variant=variant, reason=reason, arguments=variant.arguments, env=variant.env)


def _image(image: Image, host: GpuHost, catalogue: Catalogue, reason: str, judged: Verdict | None) -> Choice:
    oldest = min((Version(capability) for _, capability in host.cards), default=None)
    quirks = [one for one in catalogue.quirks if oldest is not None and oldest < Version(one.below)]
    # CUDA would run, and Container Toolkit would still refuse: the image's own condition lists fewer drivers.
    refused = judged is not None and judged.runs and not judged.requirement_met
    return Choice(
        variant=image,
        reason=reason,
        arguments=(*image.arguments, *(word for quirk in quirks for word in quirk.arguments)),
        env={**image.env, **({"NVIDIA_DISABLE_REQUIRE": "1"} if refused else {})},
    )


def _cards(host: GpuHost) -> tuple[Card, ...]:
    known = knowledge.load()
    rows = ((known.gpu_by_name(name), name, capability) for name, capability in host.cards)
    return tuple(
        Card(capability, row.kind if row else "geforce" if "geforce" in name.lower() else None)
        for row, name, capability in rows
    )


def _refusal(host: GpuHost, driver: str, catalogue: Catalogue) -> str:
    judged = [(image, verdict.of_image(image, driver, _cards(host))) for image in catalogue.images]
    return (
        "No pinned engine runs on this host:\n"
        + "".join(f"  {image.name}: {one.way.value}: {one.reason}\n" for image, one in judged)
        + "Update the driver (lpxdoctor check says to what), or name an engine: --variant, and your own --image."
    )
