"""What a run tells while it lasts, and what it asks: whether it is to end now."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a rung has come."""

    concurrency: int
    answered: int
    failed: int
    asked: int


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Called between two polls, so what they do has to be short."""

    progress: Callable[[Progress], None] = lambda progress: None  # noqa: ARG005
    is_stopped: Callable[[], bool] = lambda: False
