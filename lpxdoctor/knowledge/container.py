"""container.toml in; since when Docker and the NVIDIA Container Toolkit do what, and which releases are flawed, out."""

from functools import lru_cache
from typing import Literal, TypeVar

import msgspec
from packaging.version import Version

from lpxdoctor.knowledge import tables_of
from lpxdoctor.knowledge.rows import Row

R = TypeVar("R", bound=Row)


class Feature(Row, frozen=True, kw_only=True):
    """Something that Docker, the toolkit or the driver does from a version on."""

    name: str
    of: Literal["docker", "toolkit", "driver"]
    since: str


class Flaw(Row, frozen=True, kw_only=True):
    """What is wrong with releases of the toolkit: all below one version, or exactly one."""

    kind: Literal["security", "function"]
    what: str
    below: str = ""
    exactly: str = ""

    def has(self, version: Version) -> bool:
        """Whether a release has it."""
        return version.base_version == self.exactly if self.exactly else version < Version(self.below)


@lru_cache(maxsize=1)
def features() -> dict[str, Feature]:
    """Return the features by name."""
    return {row.name: row for row in _rows("features", Feature)}


def has(feature: str, version: Version | None) -> bool | None:
    """Return whether a version has a feature, None where the version is not known."""
    return None if version is None else version >= Version(features()[feature].since)


@lru_cache(maxsize=1)
def flaws() -> tuple[Flaw, ...]:
    """Return the toolkit's known flaws."""
    return _rows("flaws", Flaw)


def _rows(name: str, row: type[R]) -> tuple[R, ...]:
    table = tables_of("container")[name]
    shared = {key: table[key] for key in ("source", "date", "certainty")}
    return tuple(msgspec.convert({**shared, **values}, row) for values in table["rows"])
