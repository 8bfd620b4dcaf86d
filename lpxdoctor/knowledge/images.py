"""images/vllm.toml in; the pinned engine images as typed values out, the preferred one first."""

import datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from lpxdoctor import bundled
from lpxdoctor.errors import UsageError
from lpxdoctor.knowledge.rows import Certainty


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine image, pinned: what it is, the CUDA it carries, and what that asks of the host.

    cuda is major.minor; driver the lowest Linux driver that runs it at all (by minor-version compatibility);
    architectures are the compute capabilities it has machine code for, ptx those it has PTX for besides;
    arguments are what its engine must be started with where it differs from the other variants.
    """

    name: str  # the word for it on a command line: "cuda13"
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
    arguments: tuple[str, ...] = ()
    note: str = ""

    @property
    def reference(self) -> str:
        """What docker pulls: the tag for people, the digest for the engine."""
        return f"{self.tag}@{self.digest}"


@lru_cache(maxsize=4)
def load(path: Path = bundled.IMAGES / "vllm.toml") -> tuple[Image, ...]:
    """Return the [[images]] of a file, as they stand there; UsageError says what is wrong with it."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[Image, ...]])["images"]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, KeyError) as error:
        raise UsageError(f"{path}: {error}. It needs one [[images]] table for each pinned image.") from None
