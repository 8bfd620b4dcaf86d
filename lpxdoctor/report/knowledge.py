"""What the tables know in, its JSON of schema 1 out."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from lpxdoctor.knowledge.survey import Newest, Table
from lpxdoctor.report.encoding import pretty


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The newest of each kind, and every table."""

    schema: Literal[1] = 1
    newest: Newest
    tables: tuple[Table, ...]


def to_json(tables: Sequence[Table], newest: Newest) -> str:
    """Return it as JSON text."""
    return pretty(Document(newest=newest, tables=tuple(tables)))
