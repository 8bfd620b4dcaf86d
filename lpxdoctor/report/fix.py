"""What fix planned or did in, JSON of schema 1 out."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import msgspec

from lpxdoctor.errors import worst
from lpxdoctor.fix.outcome import HostResult, status
from lpxdoctor.fix.plan import Step

SCHEMA: Literal[1] = 1


class StepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a playbook; ids are the tags that it is run with. later: only after the reboot."""

    playbook: str
    ids: tuple[str, ...]
    changes: tuple[str, ...]
    interrupts: bool
    next_boot: tuple[str, ...]
    later: bool


class ByHandDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that no playbook puts right."""

    id: str
    title: str
    do: tuple[str, ...]


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its plan, and where it ran what became of it. status is the exit status that it would give alone."""

    host: str
    status: int
    steps: tuple[StepDocument, ...]
    reboots: bool
    interrupts: bool
    gpu_work: tuple[str, ...]
    gpu_work_unseen: str
    by_hand: tuple[ByHandDocument, ...]
    waiting_for: dict[str, str]
    refused: str
    failure: str
    removed: tuple[str, ...]
    left: tuple[str, ...]
    waiting_for_reboot: tuple[str, ...]
    appeared: tuple[str, ...]
    rebooting: bool
    evidence: tuple[str, ...]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts. ran: whether anything was to be changed, or only planned."""

    schema: Literal[1]
    ran: bool
    status: int
    hosts: tuple[HostDocument, ...]


def document(results: Sequence[HostResult], ids: Collection[str], *, ran: bool) -> Document:
    """Return what is said of results."""
    hosts = tuple(_host(result, ids) for result in results)
    return Document(schema=SCHEMA, ran=ran, status=worst(host.status for host in hosts), hosts=hosts)


def merged(documents: Iterable[Document]) -> Document:
    """Return several documents of what ran as one."""
    hosts = tuple(host for one in documents for host in one.hosts)
    return Document(schema=SCHEMA, ran=True, status=worst(host.status for host in hosts), hosts=hosts)


def _host(result: HostResult, ids: Collection[str]) -> HostDocument:
    plan = result.plan
    return HostDocument(
        host=result.host,
        status=status(result, ids),
        steps=tuple(_step(step, later=step in plan.later) for step in (*plan.steps, *plan.later)) if plan else (),
        reboots=plan.reboots if plan else False,
        interrupts=plan.interrupts if plan else False,
        gpu_work=plan.work.running if plan else (),
        gpu_work_unseen=plan.work.unseen if plan else "",
        by_hand=tuple(ByHandDocument(id=b.id, title=b.title, do=b.do) for b in plan.by_hand) if plan else (),
        waiting_for=dict(plan.waiting) if plan else {},
        refused=result.refused,
        failure=result.failure,
        removed=result.removed,
        left=result.left,
        waiting_for_reboot=result.waiting,
        appeared=tuple(found.check.id for found in result.appeared),
        rebooting=result.rebooting,
        evidence=tuple(map(str, result.evidence)),
    )


def _step(step: Step, *, later: bool) -> StepDocument:
    fields: dict[str, Any] = vars(step)
    return StepDocument(**fields, later=later)
