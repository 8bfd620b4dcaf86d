"""The types of a file of evidence, for its JSON Schema: evidence.py, which writes it, is standard library alone."""

from typing import Any, Literal

import msgspec


class AnswerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe brought back: a value, or why there is none; seconds is how long it took.

    failure is absent (no such file, program or server), denied, timeout or failed (anything else), and reason says it
    for people. What is not there has its default.
    """

    value: Any = None
    failure: Literal["", "absent", "denied", "timeout", "failed"] = ""
    reason: str = ""
    seconds: float = 0.0


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What one host answered: probe -> answer. uid of who asked; null where that is not known."""

    schema: Literal[1]
    host: str
    collected_at: str  # ISO 8601, UTC
    collector: str  # the version of lpxdoctor that asked
    uid: int | None
    answers: dict[str, AnswerDocument]
