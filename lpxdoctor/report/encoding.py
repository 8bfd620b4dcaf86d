"""A typed document in, its JSON text out."""

import msgspec


def pretty(document: msgspec.Struct) -> str:
    """Return a document as JSON text that people can read too."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
