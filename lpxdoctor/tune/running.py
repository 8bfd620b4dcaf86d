"""A service, settings and a way to measure in, what such an engine does out; and what is left of the run's budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lpxdoctor.decode.profile import Profile
from lpxdoctor.policy import Policy
from lpxdoctor.tune.accuracy import Answers
from lpxdoctor.tune.service import Service, Settings, StoppedError


class Measured(Protocol):
    """Measures what runs at a place: its speed and its answers; None when it was stopped before it had both."""

    def __call__(self, where: str, settings: Settings, /) -> tuple[Profile, Answers] | None:
        """Measure; DoctorError when it cannot be."""
        ...


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run works with; clock tells seconds, tell takes a line of progress."""

    service: Service
    measured: Measured
    policy: Policy
    budget_s: float
    is_stopped: Callable[[], bool]
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    began: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """Return what is left of the budget."""
        return self.budget_s - (self.clock() - self.began)

    def tried(self, settings: Settings, what: str) -> tuple[Profile, Answers, float] | None:
        """Start the engine with settings and measure it; return the seconds too, None when it was stopped.

        Raises:
            NotStartedError: it did not come up.
            DoctorError: it could not be measured.
        """
        began = self.clock()
        self.tell(f"{what} ({self.left_s() / 60:.0f} of {self.budget_s / 60:.0f} min left)")
        try:
            with self.service.running(settings, self.is_stopped) as where:
                found = self.measured(where, settings)
        except StoppedError:
            return None
        return None if found is None else (*found, self.clock() - began)


def words(settings: Settings) -> str:
    """Return settings as people call them."""
    return " ".join((*settings.added, *(f"without {flag}" for flag in settings.removed))) or "as found"
