"""vllm.toml in; what each release of vLLM is built with and asks of a host out, None for one newer than the table."""

from functools import lru_cache

import msgspec
from packaging.version import Version

from lpxdoctor.knowledge import tables_of, version
from lpxdoctor.knowledge.rows import Row


class Release(Row, frozen=True, kw_only=True):
    """A release of vLLM: its torch, the CUDA of its image and of the torch that pip installs, and what it needs.

    python is a version specifier; glibc "" where the wheel's tag says nothing true; released "" or a day or month, at
    the latest; variants are the suffixes of the images besides the one without.
    """

    version: str
    torch: str
    cuda: str
    wheel_cuda: str
    python: str
    min_cc: str
    glibc: str = ""
    variants: tuple[str, ...] = ()
    released: str = ""

    @property
    def image(self) -> str:
        """The tag of the default image."""
        return f"vllm/vllm-openai:v{self.version}"


@lru_cache(maxsize=1)
def releases() -> tuple[Release, ...]:
    """Return the releases, oldest first."""
    table = tables_of("vllm")["releases"]
    shared = {key: table[key] for key in ("source", "date", "certainty")}
    return tuple(msgspec.convert({**shared, **values}, Release) for values in table["rows"])


def release(text: str) -> Release | None:
    """Return the release of a version as vLLM prints it ("0.25.1", "0.25.1+cu129"), None for what is not listed."""
    wanted = version(text)
    if wanted is None:
        return None
    public = Version(wanted.public)
    return next((row for row in releases() if Version(row.version) == public), None)
