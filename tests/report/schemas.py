"""A command's JSON in, an error where it is not what is published of it out."""

import json
from pathlib import Path
from typing import Any

import jsonschema

PUBLISHED = Path("docs/schema")


def valid(document: Any, name: str) -> None:
    """Assert that a document is valid against docs/schema/NAME.json, and has nothing that it does not tell of."""
    schema = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    jsonschema.validate(document, _closed(schema))


def _closed(schema: Any) -> Any:
    """Return a schema that allows no other keys; readers are promised that some may be added, and we are not."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {**closed, "additionalProperties": False} if "properties" in closed else closed
