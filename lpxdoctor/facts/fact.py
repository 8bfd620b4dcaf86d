"""What every fact has in common: probes in, a frozen value out, whose unreadable fields say why when they are used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from lpxdoctor.evidence import Evidence, Probe, Unreadable

T = TypeVar("T")


class NotApplicable(Exception):  # noqa: N818 - it is an answer, raised to leave a check early
    """What was asked has no meaning on this host; str() of it says why."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A layer's facts. Reading a field that could not be read raises Unreadable with the probe's own reason.

    So a check reads as if everything were known, and a check that needs what is not becomes UNKNOWN.
    """

    probes: ClassVar[tuple[Probe, ...]] = ()

    @classmethod
    def parse(cls, evidence: Evidence) -> "Fact":
        """Return the facts that the answers to the probes hold; never raises."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # a checker that saw it would take every misspelt field for Any

        def __getattribute__(self, name: str) -> Any:
            value = object.__getattribute__(self, name)
            if isinstance(value, Unreadable):
                raise Unreadable(str(value))
            return value


def known(read: Callable[[], T]) -> T:
    """Return what read() returns or, where it could not be read or understood, an Unreadable in its place.

    The value is handed to a Fact's constructor: the Fact raises it when the field is used.
    """
    try:
        return read()
    except Unreadable as reason:
        return cast("T", reason)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:  # what a parser meets in odd output
        return cast("T", Unreadable(f"the answer could not be understood: {type(error).__name__}: {error}"))


def told(read: Callable[[], str]) -> str:
    """Return what read() returns or, where it is unreadable, "not known: REASON": for what is only mentioned."""
    try:
        return read()
    except Unreadable as reason:
        return f"not known: {reason}"
