"""A run of provision, for people and as JSON of schema 1: where every host is, why it stopped and how to go on."""

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from lpxdoctor.provision.record import Host, Record
from lpxdoctor.provision.run import Result, planned

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
    return msgspec.json.format(msgspec.json.encode(document(result)), indent=2).decode() + "\n"


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


def plan(record: Record, phases: Sequence[str]) -> str:
    """Return the batches that are ahead, and what each host has to pass."""
    ahead = planned(record)
    done = record.at("done")
    lines = [f"{_hosts(len(record.hosts))}: {' → '.join(phases)}; stops once {record.wishes.max_fail} failed"]
    lines += [f"done before, only checked: {', '.join(done)}"] if done else []
    for number, batch in enumerate(ahead, 1):
        what = "canary" if number == 1 and not done else f"{len(batch)} host{'s' if len(batch) > 1 else ''}"
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
