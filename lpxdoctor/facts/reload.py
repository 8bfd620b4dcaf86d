"""What containers could open before and after a daemon-reload in; by which paths the GPU is lost out."""

from dataclasses import dataclass
from typing import Any, ClassVar

from lpxdoctor.evidence import Evidence, Probe, Program
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.facts.passthrough import PATHS

# Acts on the host, so it is asked only when a person says so.
RELOAD = Program("reload", timeout_s=28.0)


@dataclass(frozen=True)
class Survival:
    """One path over a daemon-reload: what the container could open before, and of that no more after."""

    label: str
    error: str  # why it could not be tried by this path, "" where it was
    opened: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Reload(Fact):
    """Whether containers keep their GPU when systemd reloads."""

    probes: ClassVar[tuple[Probe, ...]] = (RELOAD,)

    asked: bool
    skipped: str  # why it was not tried though asked for, "" where it was
    paths: tuple[Survival, ...]

    @classmethod
    def parse(cls, evidence: Evidence) -> "Reload":
        """Return the facts; never raises."""
        return cls(
            asked=RELOAD.key in evidence.answers,
            skipped=known(lambda: str(evidence.value(RELOAD)["skipped"] or evidence.value(RELOAD)["failure"])),
            paths=known(lambda: tuple(_survival(each) for each in evidence.value(RELOAD)["paths"])),
        )


def _survival(raw: Any) -> Survival:
    opened = tuple(node for node, errno in raw["before"].items() if not errno)
    lost = tuple(node for node in opened if raw["after"].get(node) != 0)
    return Survival(PATHS[raw["path"]], raw["error"], opened, lost)
