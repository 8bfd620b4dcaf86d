"""What a check file imports: a decorator that makes a Check of a documented function of facts, and what it yields."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, get_type_hints

from lpxdoctor.facts.fact import NotApplicable

if TYPE_CHECKING:
    from lpxdoctor.facts.engine import Engine
    from lpxdoctor.facts.messages import Match

__all__ = ("CHAIN", "Check", "Finding", "Layer", "NotApplicable", "Proof", "Seen", "Severity", "check", "logged")

P = ParamSpec("P")

# Where in the chain a fault lies; each is judged before the next is blamed.
Layer = Literal["hardware", "driver", "engine", "deployment"]

# The words of check files and ids: a fault of an earlier one explains one of a later.
CHAIN = ("host", "boot", "driver", "gpu", "fabric", "cuda", "container", "engine", "decode")


class Severity(Enum):
    """How bad a finding is; the value is its word in reports."""

    FAIL = "fail"  # it breaks something now, or surely at the next start
    WARN = "warn"  # it will break something, or slows it
    INFO = "info"  # worth knowing; the host is healthy with it


@dataclass(frozen=True)
class Seen:
    """One observation: what it is, its value, and where it was read."""

    what: str
    value: str
    where: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: on which part of the host, what was seen, and what to type against it here.

    Where do is empty, the Fix section of the check stands. confirm is what to look at to be sure, or to decide between
    causes; where the host itself was asked there is nothing left to confirm.
    """

    message: str
    subject: str = ""
    seen: tuple[Seen, ...] = ()
    do: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()


def logged(engine: "Engine", cause: "Match", *more: Seen, do: tuple[str, ...] = ()) -> Finding:
    """Return what is wrong with an engine by its own log; more is what else was seen."""
    said = Seen("log", cause.line, f"docker logs {engine.name}")
    return Finding(f"{engine.name}: {cause.meaning}", engine.name, (said, *more), do)


@dataclass(frozen=True)
class Proof:
    """Evidence in a text for the fault that a check is about.

    rank: 0 where the text states the fault; the higher, the less directly it points to it. severity: instead of the
    check's own, where the text shows that what the check only warns of has happened.
    """

    id: str
    finding: Finding
    rank: int = 0
    severity: Severity | None = None


@dataclass(frozen=True)
class Check(Generic[P]):
    """A pure function of facts with its id, its severity, what it follows from, and its explanation."""

    id: str
    severity: Severity
    layer: Layer
    after: tuple[str, ...]
    fix: str  # the playbook that puts it right, or ""
    function: Callable[P, Iterator[Finding]]
    title: str
    why: str
    cure: str
    source: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Finding]:
        """Yield what is wrong, given the facts."""
        return self.function(*args, **kwargs)

    @cached_property  # worked out once: a fleet asks for it a thousand times
    def parameters(self) -> dict[str, type]:
        """The facts it needs: {parameter: type}."""
        hints = get_type_hints(self.function)
        return {name: kind for name, kind in hints.items() if name != "return"}


def check(
    id: str,  # noqa: A002 - the word every report uses
    severity: Severity,
    *,
    layer: Layer,
    after: tuple[str, ...] | list[str] = (),
    fix: str = "",
) -> Callable[[Callable[P, Iterator[Finding]]], Check[P]]:
    """Make a check of a generator function whose docstring has a title line and Why, Fix and Source sections.

    Args:
        id: the illness, "<file>.<what-is-wrong>", written out so that a grep for it lands here.
        severity: of everything that it yields.
        layer: where in the chain the fault lies.
        after: ids of what it would only repeat: when one of them fails, this check is BLOCKED by it.
        fix: the playbook that puts it right.
    """

    def make(function: Callable[P, Iterator[Finding]]) -> Check[P]:
        text = _sections(inspect.getdoc(function) or "")
        return Check(
            id=id,
            severity=severity,
            layer=layer,
            after=tuple(after),
            fix=fix,
            function=function,
            title=text["Title"].rstrip("."),
            why=text.get("Why", ""),
            cure=text.get("Fix", ""),
            source=text.get("Source", ""),
        )

    return make


def _sections(text: str) -> dict[str, str]:
    """Split a docstring into its title and its sections; a section runs to the next one, blank lines kept.

    Its lines stand four columns further in; what stands further yet is a command, and stays so.
    """
    parts = re.split(r"^(Why|Fix|Source):\s*", text, flags=re.MULTILINE)
    named = {
        name: re.sub(r"(?m)^ {1,4}", "", body).rstrip() for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {"Title": " ".join(parts[0].split()), **named}
