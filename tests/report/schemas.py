"""A command's JSON in, an error where it is not what is published of it out."""

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import jsonschema

from lpxdoctor.report.schemas import DOCUMENTS

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "schema"


def valid(document: Any, name: str) -> None:
    """Assert that a document is valid against docs/schema/NAME.json, and has nothing that it does not tell of."""
    schema = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    jsonschema.validate(document, _closed(schema))


def commands(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the words that call what prints a document."""
    return tuple(tuple(takewhile(str.isalpha, line.split())) for line in DOCUMENTS[name][0])


def valid_of(argv: Sequence[object], document: Any) -> None:
    """Assert that a document is one of those that are published of the command that printed it."""
    words = tuple(map(str, argv))
    names = [name for name in DOCUMENTS for own in commands(name) if words[: len(own)] == own]
    fitting = [name for name in names if _fits(document, name)]
    if len(fitting) != 1:
        valid(document, names[0])
        raise AssertionError(f"{words} printed what is {fitting} among {names}")


def _fits(document: Any, name: str) -> bool:
    try:
        valid(document, name)
    except jsonschema.ValidationError:
        return False
    return True


def _closed(schema: Any) -> Any:
    """Return a schema that allows no other keys; readers are promised that some may be added, and we are not."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {**closed, "additionalProperties": False} if "properties" in closed else closed
