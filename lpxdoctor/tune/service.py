"""A recipe for an engine in, that engine running with other arguments out: what every way to start one can do."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from lpxdoctor.errors import DoctorError

_WIDTH = 200


class NotStartedError(DoctorError):
    """An engine did not come up: the message is its last word, log what it said before."""

    exit_code = 2

    def __init__(self, message: str, log: tuple[str, ...] = (), kept: str = "") -> None:
        """Keep the message, the log's last lines, and where the whole log is."""
        super().__init__(message)
        self.log = log
        self.kept = kept

    @property
    def whole(self) -> str:
        """The message with the log's last lines, and where the whole log is."""
        tail = ("Its last lines:", *(f"  {line[:_WIDTH]}" for line in self.log)) if self.log else ()
        return "\n".join((str(self), *tail, *([f"What it said: {self.kept}"] if self.kept else [])))


class StoppedError(DoctorError):
    """Ctrl-C came while an engine started."""

    exit_code = 130


@dataclass(frozen=True)
class Settings:
    """Arguments that differ from the recipe's own: those added at its end, and flags taken away from it."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def and_(self, other: "Settings") -> "Settings":
        """Return both."""
        return Settings((*self.added, *other.added), (*self.removed, *other.removed))


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the recipe tells of its engine: its options with values, and the directory or name of its model."""

    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str | None = None


class Service(Protocol):
    """An engine that can be started anew."""

    @property
    def name(self) -> str:
        """What was typed for it."""
        ...

    @property
    def hints(self) -> Hints:
        """What its own arguments tell."""
        ...

    def arguments(self, settings: Settings, /) -> tuple[str, ...] | None:
        """Return the whole command line with the settings, None where a record of the deployment has it."""
        ...

    def running(self, settings: Settings, is_stopped: Callable[[], bool], /) -> AbstractContextManager[str]:
        """Start it with the settings, and yield the URL or the deployment to measure.

        Raises:
            NotStartedError: it did not come up.
            StoppedError: is_stopped said so meanwhile.
        """
        ...

    def leave(self, settings: Settings, /) -> None:
        """Leave the service with these settings when all is over; those of the recipe itself are how it was found."""
        ...
