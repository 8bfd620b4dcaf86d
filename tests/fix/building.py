"""Small checks, evidence and plans for tests of fix, on files below one directory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lpxdoctor import catalog, policy
from lpxdoctor.check import Check, Finding, Severity, check
from lpxdoctor.evaluate import Judgement, evaluate
from lpxdoctor.evidence import Answer, Evidence, File
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.fix.catalogue import Task
from lpxdoctor.fix.plan import Plan, plan
from lpxdoctor.fix.work import GpuWork

STATE = File("/state")


@dataclass(frozen=True, kw_only=True)
class State(Fact):
    wrong: tuple[str, ...]
    probes = (STATE,)

    @classmethod
    def parse(cls, evidence: Evidence) -> "State":
        return cls(wrong=known(lambda: tuple(evidence.text(STATE).split())))


def making(id_: str, fix: str = "", after: tuple[str, ...] = (), severity: Severity = Severity.FAIL) -> Check[Any]:
    """Return a check that finds its own id among the words of the state."""

    @check(id_, severity, layer="driver", after=after, fix=fix)
    def made(state: State) -> Iterator[Finding]:
        """Something is wrong.

        Why: because.
        Fix: mend it.
        """
        if id_ in state.wrong:
            yield Finding(f"{id_} is in the state", do=(f"mend {id_}",))

    return made


WARN, INFO = Severity.WARN, Severity.INFO
CHECKS = catalog.ordered(
    (
        making("boot.a", "boot"),
        making("boot.b", "boot", severity=WARN),
        making("driver.a", "driver", after=("boot.a",)),
        making("driver.b", "driver", after=("boot.b",)),
        making("driver.c", after=("driver.a",)),
        making("container.a", "container", after=("driver.a",)),
        making("container.note", "container", severity=INFO),
        making("container.untagged", "container"),
    )
)
CATALOGUE: Mapping[str, tuple[Task, ...]] = {
    "boot": (
        Task("Look", frozenset({"always", "boot.a"}), changes=False),
        Task("Write a", frozenset({"boot.a"})),
        Task("Write both", frozenset({"boot.a", "boot.b", "reboot"})),
    ),
    "driver": (
        Task("Install", frozenset({"driver.a", "driver.b", "interrupts"})),
        Task("Hold", frozenset({"driver.b"})),
    ),
    "container": (Task("Set up", frozenset({"container.a", "container.note"})),),
}


def judged(*wrong: str, unreadable: bool = False) -> Judgement:
    answer = Answer(failure="denied", reason="denied") if unreadable else Answer(" ".join(wrong))
    return evaluate(CHECKS, Evidence("gpu-1", {STATE.key: answer}), policy.load())


def planned(*wrong: str, ids: tuple[str, ...] = (), work: GpuWork | None = None) -> Plan:
    return plan(judged(*wrong), CATALOGUE, ids, work or GpuWork())
