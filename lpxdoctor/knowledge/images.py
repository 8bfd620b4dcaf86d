"""images/vllm.toml in; the pinned engine images and built ones as typed values out, the preferred one first."""

import datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from lpxdoctor import bundled
from lpxdoctor.errors import UsageError
from lpxdoctor.knowledge.rows import Certainty, Row

MODEL = "/model"  # where a container has the model


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine image, pinned: what it is, the CUDA it carries, and what that asks of the host.

    cuda is major.minor; driver the lowest Linux driver that runs it at all (by minor-version compatibility);
    architectures are the compute capabilities it has machine code for, ptx those it has PTX for besides;
    arguments are what its engine must be started with where it differs from the other variants.
    """

    tag: str  # "vllm/vllm-openai:v0.30.0"
    digest: str  # "sha256:…", of the manifest that the tag meant when it was pinned
    engine: str  # the version of vLLM inside
    cuda: str
    driver: str
    architectures: tuple[str, ...]
    source: str
    date: datetime.date
    certainty: Certainty
    ptx: tuple[str, ...] = ()
    command: tuple[str, ...] = ("vllm", "serve", MODEL)
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    note: str = ""

    @property
    def name(self) -> str:
        """The word for it on a command line: "v0.30.0-cu129"."""
        return self.tag.rpartition(":")[2]

    @property
    def reference(self) -> str:
        """What docker pulls: the tag for people, the digest for the engine."""
        return f"{self.tag}@{self.digest}"


class Built(Row, frozen=True, kw_only=True):
    """An engine image that no registry has: it is made from a recipe, and known by its id where it is."""

    name: str
    tag: str
    recipe: str  # a program below images/ that makes it and prints its tag
    engine: str
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class Quirk(Row, frozen=True, kw_only=True):
    """Arguments that every engine needs on GPUs below a compute capability."""

    below: str
    arguments: tuple[str, ...]


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of images/vllm.toml."""

    images: tuple[Image, ...]
    built: tuple[Built, ...] = ()
    quirks: tuple[Quirk, ...] = ()


@lru_cache(maxsize=4)
def load_all(path: Path = bundled.IMAGES / "vllm.toml") -> Catalogue:
    """Return what a file says, in its order; UsageError says what is wrong with it."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Catalogue)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}. It needs one [[images]] table for each pinned image.") from None


def load(path: Path = bundled.IMAGES / "vllm.toml") -> tuple[Image, ...]:
    """Return the [[images]] of a file, the ones with CUDA, as they stand there."""
    return load_all(path).images
