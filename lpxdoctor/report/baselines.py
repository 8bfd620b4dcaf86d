"""Baselines of many deployments: rows in; one table for people, or JSON of schema 1, out."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from lpxdoctor.decode.profile import Profile
from lpxdoctor.report.encoding import pretty

_HEAD = ("host", "deployment", "at once", "TTFT p50", "TPOT p50", "tokens/s", "")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment, or a host that has none: a profile, or why there is none."""

    host: str
    deployment: str | None
    profile: Profile | None = None
    file: str | None = None  # where the profile was kept
    status: int  # as the exit status of a baseline of it alone
    why: str = ""  # there is no profile, or its lines cannot be compared


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What `lpxdoctor baseline -i` says."""

    schema: Literal[1] = 1
    rows: tuple[Row, ...]


def json(rows: Sequence[Row]) -> str:
    """Return the rows with their whole profiles."""
    return pretty(Document(rows=tuple(rows)))


def text(rows: Sequence[Row]) -> str:
    """Return a table: a line for each concurrency of a deployment, or one that says why there is none."""
    cells = [_HEAD, *(line for row in rows for line in _cells(row))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
    return "\n".join(_aligned(line, widths) for line in cells)


def _cells(row: Row) -> list[tuple[str, ...]]:
    name = row.deployment or "-"
    if row.profile is None:
        return [(row.host, name, "-", "-", "-", "-", row.why.replace("\n", " "))]
    return [
        (
            row.host,
            name,
            str(rung.concurrency),
            _ms(rung.ttft_ms.p50),
            _ms(rung.tpot_ms.p50),
            "-" if rung.output_tokens_per_s is None else f"{rung.output_tokens_per_s:,.0f}",
            "" if rung.valid else f"not comparable: {rung.invalid_because}",
        )
        for rung in row.profile.rungs
    ]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    words, numbers = line[:2], line[2:-1]
    told = [word.ljust(width) for word, width in zip(words, widths, strict=False)]
    told += [number.rjust(width) for number, width in zip(numbers, widths[2:], strict=False)]
    return "  ".join((*told, line[-1])).rstrip()


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
