"""Faults that are files, and a playbook that removes some of them: what runs of fix are tried on, on this machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from lpxdoctor import catalog, fleet
from lpxdoctor.check import Check, Finding, Severity, check
from lpxdoctor.evidence import Evidence, Listing
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.fix import run
from lpxdoctor.fix.outcome import HostResult
from lpxdoctor.fix.play import Job
from lpxdoctor.playbook import TaskEvent

# Each fault is a file below the directory faults, whose name is the id; a playbook removes it, or does not.
TASKS = """
- name: Remove a
  ansible.builtin.file: {path: "{root}/faults/boot.a", state: absent}
  tags: [boot.a]
- name: Claim to remove b
  ansible.builtin.file: {path: "{root}/elsewhere", state: absent}
  tags: [boot.b]
- name: Note that c goes with the next boot
  ansible.builtin.copy: {content: c, dest: "{root}/next", mode: "0600"}
  tags: [boot.c, reboot]
- name: Break
  ansible.builtin.fail: {msg: "E: Could not get lock /var/lib/dpkg/lock-frontend"}
  when: "'{root}/faults/boot.d' is ansible.builtin.exists"
  tags: [boot.d]
- name: Remove what is to be seen of f
  ansible.builtin.file: {path: "{root}/faults/boot.f", state: absent}
  tags: [boot.f]
- name: Finish f
  ansible.builtin.copy: {content: f, dest: "{root}/finished", mode: "0600"}
  tags: [boot.f]
- name: Say what is told about GPU work
  ansible.builtin.copy: {content: "{{ gpu_work }}", dest: "{root}/told", mode: "0600"}
  tags: [always]
"""


@dataclass(frozen=True, kw_only=True)
class Faults(Fact):
    """What is wrong: the names of the files."""

    there: frozenset[str]
    where: ClassVar[Listing]

    @classmethod
    def parse(cls, evidence: Evidence) -> "Faults":
        return cls(there=known(lambda: frozenset(path.rpartition("/")[2] for path in evidence.found(cls.where))))


def making(id_: str, after: tuple[str, ...] = ()) -> Check[Any]:
    @check(id_, Severity.FAIL, layer="driver", after=after, fix="boot")
    def made(faults: Faults) -> Iterator[Finding]:
        """Something is wrong.

        Why: because.
        Fix: mend it.
        """
        if id_ in faults.there:
            yield Finding(f"there is {id_}")

    return made


CHECKS = catalog.ordered((*(making(f"boot.{letter}") for letter in "abcdf"), making("boot.e", after=("boot.a",))))

Planting = Callable[..., Job]


def ignore(event: TaskEvent) -> None:
    pass


def boot(name: str) -> property:
    """Return what has every look see that boot."""
    return property(lambda _: name)


def carried_out(job: Job) -> HostResult:
    (result,) = run.carried_out(job, fleet.hosts(job.source))
    return result


def resumed(job: Job) -> HostResult:
    (result,) = run.resumed(job, fleet.hosts(job.source))
    return result
