"""A comparison in, its JSON of schema 1 out: by itself, or with the profile that was compared."""

from typing import Literal

import msgspec

from lpxdoctor.decode.advice import advice, warnings
from lpxdoctor.decode.compare import Compared, Comparison, Verdict
from lpxdoctor.decode.profile import Profile
from lpxdoctor.decode.resample import Change, Noise
from lpxdoctor.decode.variables import Variable
from lpxdoctor.report.encoding import pretty


class IdentityDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Which profile."""

    id: str
    name: str | None
    started: str


class RowDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One concurrency, or all together (null); why is null where it was judged, and changes empty where it was not."""

    concurrency: int | None
    verdict: Verdict
    why: str | None
    repeats: tuple[int, int]
    changes: dict[str, Change]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison; shares are of 1, and unknown names what is known of one side only."""

    schema: Literal[1] = 1
    verdict: Verdict
    why: str | None
    a: IdentityDocument
    b: IdentityDocument
    differing: tuple[Variable, ...]
    unknown: tuple[str, ...]
    noise: Noise
    rungs: tuple[RowDocument, ...]
    overall: RowDocument | None
    not_compared: tuple[int, ...]
    advice: tuple[str, ...] = ()  # what to do next
    warnings: tuple[str, ...] = ()


class BaselineDocument(Profile, frozen=True, kw_only=True):
    """A profile, and with --against how it compares."""

    comparison: Document | msgspec.UnsetType = msgspec.UNSET


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON text."""
    return pretty(document(comparison))


def with_comparison(profile: Profile, comparison: Comparison) -> str:
    """Return a profile as JSON text that has the comparison too."""
    told = BaselineDocument(**msgspec.structs.asdict(profile), comparison=document(comparison))
    return pretty(told)


def document(comparison: Comparison) -> Document:
    """Return the comparison as what JSON says of it."""
    setups = comparison.setups
    return Document(
        verdict=comparison.verdict,
        why=comparison.why or None,
        a=_identity(comparison.a),
        b=_identity(comparison.b),
        differing=setups.differing,
        unknown=setups.unknown,
        noise=comparison.noise,
        rungs=tuple(map(_row, comparison.rungs)),
        overall=_row(comparison.overall) if comparison.overall else None,
        not_compared=comparison.alone,
        advice=advice(comparison),
        warnings=warnings(comparison),
    )


def _identity(profile: Profile) -> IdentityDocument:
    return IdentityDocument(id=profile.id, name=profile.name, started=profile.started)


def _row(row: Compared) -> RowDocument:
    return RowDocument(
        concurrency=row.concurrency,
        verdict=row.verdict,
        why=row.why or None,
        repeats=row.repeats,
        changes=dict(row.changes),
    )
