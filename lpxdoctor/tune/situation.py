"""What rules judge by, and what they yield: an engine as it was found, and one value of one variable to try on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from lpxdoctor.decode.profile import Profile
from lpxdoctor.sizing.plan import Plan
from lpxdoctor.tune.service import Settings


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One value of one variable; skipped is why it is not tried, "" where it is."""

    step: str
    settings: Settings = field(default_factory=Settings)
    reason: str = ""
    skipped: str = ""

    @property
    def told(self) -> str:
        """The settings in words."""
        taken = [f"without {flag}" for flag in self.settings.removed]
        return " ".join((*self.settings.added, *taken)) or self.step


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the rules judge by.

    Attributes:
        first: the profile of the engine as found.
        flags: options of the recipe, with values.
        plan: of the model on this machine's GPU; where there is none, why.
        unique_prompts: the service's prompts share no beginnings.
        speculate: "ngram", or directories of draft models.
        given: settings that were typed, to be tried first.
    """

    first: Profile
    flags: Mapping[str, str]
    plan: Plan | str
    model: str | None = None
    unique_prompts: bool = False
    speculate: tuple[str, ...] = ()
    given: tuple[Settings, ...] = ()

    @property
    def version(self) -> Version | None:
        """The engine's version."""
        try:
            return Version(self.first.engine.version or "")
        except InvalidVersion:
            return None

    @property
    def most(self) -> int:
        """The largest concurrency measured."""
        return max(rung.concurrency for rung in self.first.rungs)
