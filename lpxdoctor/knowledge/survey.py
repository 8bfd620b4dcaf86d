"""Every table of this directory and of the pinned images in; how many rows each has, how old and how sure, out."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from packaging.version import Version

from lpxdoctor import bundled, knowledge
from lpxdoctor.knowledge import images, tables_of, vllm


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One table: its file and name, its rows, the days of which its oldest and newest row are, and how many are unsure.

    low counts the rows of low certainty: they are for advice and never carry a failure.
    """

    file: str
    name: str
    rows: int
    oldest: datetime.date
    newest: datetime.date
    low: int


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest of each kind that the tables know; what is newer is unknown, never guessed."""

    driver_branch: int
    cuda: str
    vllm: str
    pinned_vllm: str
    xid: int


def tables() -> tuple[Table, ...]:
    """Return every table, file by file."""
    found = [
        _table(path.stem, name, rows, shared)
        for path in sorted(bundled.KNOWLEDGE.glob("*.toml"))
        for name, rows, shared in _parts(path.stem, tables_of(path.stem))
    ]
    pinned = [{"date": image.date, "certainty": image.certainty} for image in images.load()]
    return (*found, _table("images/vllm", "images", pinned, {}))


def newest() -> Newest:
    """Return the newest of each kind."""
    known = knowledge.load()
    return Newest(
        driver_branch=known.branches[-1].branch,
        cuda=known.toolkits[-1].version,
        vllm=vllm.releases()[-1].version,
        pinned_vllm=str(max(Version(image.engine) for image in images.load())),
        xid=max(row.code for row in known.xids),
    )


def _parts(stem: str, file: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[Mapping[str, Any]], Mapping[str, Any]]]:
    """Yield (name, rows, what its rows share) for each table; a file's own keys hold for tables without theirs."""
    if "rows" in file:
        yield stem, file["rows"], file
        return
    for name, table in file.items():
        if isinstance(table, dict):
            yield name, table["rows"], {**file, **table}
        elif isinstance(table, list):
            yield name, table, file


def _table(file: str, name: str, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]) -> Table:
    days = [row.get("date") or shared["date"] for row in rows]
    low = sum(1 for row in rows if row.get("certainty", shared.get("certainty")) == "low")
    return Table(file=file, name=name, rows=len(rows), oldest=min(days), newest=max(days), low=low)
