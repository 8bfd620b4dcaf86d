"""An image's CUDA, a host's driver and its GPUs in; by which way the one runs on the other out, before it is pulled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from packaging.version import Version

from lpxdoctor import knowledge
from lpxdoctor.knowledge.images import Image
from lpxdoctor.knowledge.rows import GpuClass


class Way(Enum):
    """How an image's CUDA gets to run on a driver, the best first."""

    NATIVE = "the driver carries this CUDA"
    MINOR = "minor-version compatibility"
    FORWARD = "forward compatibility"
    UNKNOWN = "not known"
    IMPOSSIBLE = "not at all"


@dataclass(frozen=True)
class Card:
    """What a verdict needs of a GPU; kind is None where its class is not known."""

    compute_capability: str
    kind: GpuClass | None


@dataclass(frozen=True)
class Verdict:
    """A way, why, the CUDA errors that a start would end with, and what is worth knowing besides.

    requirement_met: whether the image's own condition on the driver holds; where it does not, Container Toolkit's
    legacy hook refuses to start it, though CUDA would run. ptx_trap: its PTX may be newer than the driver's compiler.
    """

    way: Way
    reason: str
    errors: tuple[int, ...] = ()
    requirement_met: bool = True
    ptx_trap: bool = False

    @property
    def runs(self) -> bool:
        """Whether it runs without being told to."""
        return self.way in (Way.NATIVE, Way.MINOR)


def of_driver(cuda: str, driver: str, cards: Iterable[Card] = ()) -> Verdict:
    """Judge a CUDA version ("13.0") against a driver ("570.86.10").

    A driver newer than the tables runs any older CUDA, since drivers are backward compatible; a CUDA newer than the
    tables is UNKNOWN.
    """
    known = knowledge.load()
    toolkit, floor = known.toolkit(cuda), known.floor(cuda)
    if toolkit is None or floor is None or knowledge.version(driver) is None or not toolkit.sure:
        return Verdict(Way.UNKNOWN, f"the tables do not tell which driver CUDA {cuda} needs")
    if _at_least(driver, toolkit.driver):
        return Verdict(Way.NATIVE, f"CUDA {cuda} needs {toolkit.driver}")
    listed = _forward_allowed(cuda, driver, cards)
    if _at_least(driver, floor.driver):
        reason = f"CUDA {cuda} comes with {toolkit.driver}; any {floor.major}.x starts from {floor.driver}"
        return Verdict(Way.MINOR, reason, requirement_met=listed is None, ptx_trap=True)
    if listed is None:
        return Verdict(
            Way.FORWARD, f"below {floor.driver} only with the image's own newer libcuda (cuda-compat) in use"
        )
    return Verdict(Way.IMPOSSIBLE, f"CUDA {cuda} needs {floor.driver}; {listed.reason}", errors=listed.errors)


def _at_least(driver: str, wanted: str) -> bool:
    """Whether a driver is of a version or newer; NVML leaves out the last part of some ("580.65" is 580.65.06)."""
    return Version(driver) >= Version(wanted) or wanted.startswith(f"{driver}.")


def _forward_allowed(cuda: str, driver: str, cards: Iterable[Card]) -> Verdict | None:
    """Return None where forward compatibility may be used, else why not and with which errors it would end."""
    known = knowledge.load()
    row = known.forward(cuda)
    for card in cards:
        if card.kind not in known.forward_classes:
            why = f"forward compatibility is not offered for {card.kind or 'this kind of'} cards"
            return Verdict(Way.IMPOSSIBLE, why, errors=(804, 803))
    branch = known.branch(driver)
    if row is None or branch is None or branch.branch not in row.branches:
        name = f"branch {branch.branch}" if branch else f"driver {driver}"
        return Verdict(
            Way.IMPOSSIBLE, f"forward compatibility to CUDA {cuda} is not offered over {name}", errors=(803,)
        )
    return None


def of_capability(image: Image, capability: str) -> Verdict:
    """Judge whether an image has code for a compute capability.

    Machine code runs on its own capability and on later minors of the same major; else PTX for an older capability is
    compiled at the start.
    """
    wanted = knowledge.version(capability)
    if wanted is None:
        return Verdict(Way.UNKNOWN, f"{capability!r} is no compute capability")
    code = [version for text in image.architectures if (version := Version(text)).major == wanted.major]
    if any(version <= wanted for version in code):
        return Verdict(Way.NATIVE, f"machine code for {capability}")
    if any(Version(text) <= wanted for text in image.ptx):
        return Verdict(
            Way.MINOR, f"only PTX for {capability}: the driver compiles it at every first start", ptx_trap=True
        )
    return Verdict(Way.IMPOSSIBLE, f"no code for compute capability {capability}", errors=(209,))


def of_image(image: Image, driver: str, cards: Sequence[Card]) -> Verdict:
    """Judge an image against a host: its driver first, then each GPU's capability; the worst counts."""
    verdicts = [of_driver(image.cuda, driver, cards)]
    verdicts += [of_capability(image, card.compute_capability) for card in cards]
    return max(verdicts, key=lambda verdict: list(Way).index(verdict.way))


def first_that_runs(images: Iterable[Image], driver: str, cards: Sequence[Card]) -> tuple[Image, Verdict] | None:
    """Return the first image that runs on a host without being told to, with the verdict; None where none does."""
    judged = ((image, of_image(image, driver, cards)) for image in images)
    return next(((image, verdict) for image, verdict in judged if verdict.runs), None)
