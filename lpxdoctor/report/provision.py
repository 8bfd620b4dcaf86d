"""A run of provision, for people and as JSON of schema 1: where every host is, why it stopped and how to go on."""

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from lpxdoctor.provision.record import Host, Record
from lpxdoctor.provision.run import Result, planned
from lpxdoctor.report.encoding import pretty

HostState = Literal["done", "failed", "not tried", "interrupted"]
_WORDS: dict[str, HostState] = {
    "done": "done",
    "failed": "failed",
    "waiting": "not tried",
    "running": "interrupted",
}
_MARKS = {"done": "✓", "failed": "✗", "not tried": "·", "interrupted": "!"}
PLAIN = str.maketrans({"✓": "+", "✗": "X", "·": "-", "→": ">"})  # for a terminal without these signs
_PLACES = {
    "": "",
    "playbooks": "in the playbooks",
    "check": "by the check",
    "deploy": "as the engine was rolled out",
    "baseline": "by the baseline",
}


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host."""

    name: str
    state: HostState
    phase: str  # where it failed or was interrupted: playbooks, check, deploy, baseline; "" elsewhere
    because: str
    changed: int
    tokens_per_s: dict[str, float]
    canary: bool


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A run; the four numbers add up to the hosts."""

    schema: Literal[1] = 1
    started: str
    done: int
    failed: int
    not_tried: int
    interrupted: int
    stopped: str  # why hosts were left, "" where none is
    hosts: tuple[HostDocument, ...]


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done: each host passes the phases, and it stops once max_fail failed.

    The first batch is the canary unless some are done: these were done before, and are only checked.
    """

    schema: Literal[1] = 1
    phases: tuple[str, ...]
    max_fail: int
    done: tuple[str, ...]
    batches: tuple[tuple[str, ...], ...]


def document(result: Result) -> Document:
    """Return the document of a run."""
    rows = tuple(_row(name, host, result.record) for name, host in result.record.hosts.items())
    count = Counter(row.state for row in rows)
    return Document(
        started=result.record.started,
        done=count["done"],
        failed=count["failed"],
        not_tried=count["not tried"],
        interrupted=count["interrupted"],
        stopped=result.stopped,
        hosts=rows,
    )


def json(result: Result) -> str:
    """Return the document as JSON."""
    return pretty(document(result))


def text(result: Result) -> str:
    """Return one line for each host, more where it failed, and how to go on."""
    told = document(result)
    width = max(len(row.name) for row in told.hosts)
    counts = (("done", told.done), ("failed", told.failed), ("not tried", told.not_tried))
    cut = (("interrupted", told.interrupted),) if told.interrupted else ()
    head = " · ".join((_hosts(len(told.hosts)), *(f"{number} {word}" for word, number in (*counts, *cut))))
    lines = [head, *(line for row in told.hosts for line in _lines(row, width))]
    if told.stopped:
        source = shlex.quote(result.record.wishes.source)
        lines += [told.stopped, f"When it is put right, go on: lpxdoctor provision -i {source} --resume"]
    return "\n".join(lines)


def plan(record: Record, phases: Sequence[str]) -> PlanDocument:
    """Return the batches that are ahead, and what each host has to pass."""
    return PlanDocument(
        phases=tuple(phases), max_fail=record.wishes.max_fail, done=record.at("done"), batches=planned(record)
    )


def plan_text(told: PlanDocument) -> str:
    """Return a line for each batch."""
    hosts = len(told.done) + sum(map(len, told.batches))
    lines = [f"{_hosts(hosts)}: {' → '.join(told.phases)}; stops once {told.max_fail} failed"]
    lines += [f"done before, only checked: {', '.join(told.done)}"] if told.done else []
    for number, batch in enumerate(told.batches, 1):
        what = "canary" if number == 1 and not told.done else f"{len(batch)} host{'s' if len(batch) > 1 else ''}"
        lines.append(f"{number:3}  {what:10}  {', '.join(batch)}")
    return "\n".join(lines)


def _row(name: str, host: Host, record: Record) -> HostDocument:
    state = _WORDS[host.stage]
    return HostDocument(
        name=name,
        state=state,
        phase=host.phase if state in {"failed", "interrupted"} else "",
        because=host.because,
        changed=host.changed,
        tokens_per_s=host.tokens_per_s,
        canary=name == record.canary,
    )


def _lines(row: HostDocument, width: int) -> list[str]:
    parts = [f"{_MARKS[row.state]} {row.name.ljust(width)}  {row.state}"]
    if row.phase:
        parts.append(_PLACES[row.phase])
    if row.changed or row.state == "done":
        parts.append(_counted(row.changed, "change") if row.changed else "nothing to change")
    if row.state == "done":
        parts += [f"{rate:,.0f} tokens/s at {at}" for at, rate in row.tokens_per_s.items()]
        parts += ["canary"] if row.canary else []
    first, *more = row.because.splitlines() or [""]
    head = ", ".join(parts) + (f": {first}" if first else "")
    return [head, *(f"    {line}" for line in more)]


def _hosts(number: int) -> str:
    return _counted(number, "host")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number != 1 else ''}"
