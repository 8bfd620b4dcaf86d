"""Go through the batches: a record and what is done to hosts in; the record of how far each of them came, out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from lpxdoctor.provision.batches import batches
from lpxdoctor.provision.record import Host, Phase, Record


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a phase ended on one host."""

    failure: str = ""
    untried: bool = False  # it was not come to, because of another host
    changed: int = 0
    tokens_per_s: Mapping[str, float] = field(default_factory=dict[str, float])


# Hosts, and the canary's tokens/s in -> how it ended on each of them.
Step = Callable[[Sequence[str], Mapping[str, float]], Mapping[str, Ended]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Where a run ended."""

    record: Record
    stopped: str = ""  # why hosts were left, "" where none is
    interrupted: bool = False


def planned(record: Record) -> tuple[tuple[str, ...], ...]:
    """Return the batches that are ahead."""
    return batches(record.at("waiting"), record.wishes.serial, len(record.hosts), canary=not record.at("done"))


def resumed(record: Record, names: Sequence[str]) -> Record:
    """Return a record to go on with: what failed or was interrupted waits again, and what is new in the inventory."""
    known = {name: record.hosts.get(name, Host()) for name in names}
    hosts = {
        name: host if host.stage == "done" else Host(because=host.because, changed=host.changed)
        for name, host in known.items()
    }
    return msgspec.structs.replace(record, hosts=hosts, canary=record.canary if record.canary in hosts else "")


def run(record: Record, steps: Mapping[Phase, Step], keep: Callable[[Record], None]) -> Result:
    """Take one batch after the other through all steps, until all hosts are done or too many failed.

    Hosts that are done already are only checked: one that is fit no more counts as failed.

    Args:
        record: where to begin.
        steps: by phase, in their order; "check" is among them.
        keep: called with the record whenever it changed.
    """
    try:
        record = _verified(record, steps["check"], keep)
        ahead = planned(record)
        for number, batch in enumerate(ahead, 1):
            why = _stop(record)
            if why:
                return Result(record=record, stopped=why)
            record = _batch(record, batch, steps, keep)
            if number == 1 and not record.at("done"):
                return Result(record=record, stopped=f"The canary {batch[0]} did not pass.")
    except _Interrupted as interrupted:
        return Result(record=interrupted.record, stopped="It was interrupted.", interrupted=True)
    left = record.at("waiting", "failed")
    return Result(record=record, stopped=(_stop(record) or "Not every host passed.") if left else "")


class _Interrupted(Exception):  # noqa: N818 - no error
    """Ctrl-C, with the record of where it came."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record


def _stop(record: Record) -> str:
    failed = record.at("failed")
    if len(failed) < record.wishes.max_fail:
        return ""
    return f"{len(failed)} failed, and --max-fail is {record.wishes.max_fail}."


def _verified(record: Record, check: Step, keep: Callable[[Record], None]) -> Record:
    done = record.at("done")
    if not done:
        return record
    for name, ended in _ended(record, "check", check, done).items():
        if ended.failure:
            because = f"it was done before, and is fit no more: {ended.failure}"
            record = record.having((name,), stage="failed", phase="check", because=because)
    keep(record)
    return record


def _batch(record: Record, batch: Sequence[str], steps: Mapping[Phase, Step], keep: Callable[[Record], None]) -> Record:
    left = list(batch)
    for phase, step in steps.items():
        record = record.having(left, stage="running", phase=phase, because="")
        keep(record)
        for name, ended in _ended(record, phase, step, left).items():
            record = _noted(record, name, phase, ended)
        keep(record)
        left = [name for name in left if record.hosts[name].stage == "running"]
        if not left:
            return record
    record = record.having(left, stage="done", phase="")
    record = msgspec.structs.replace(record, canary=record.canary or left[0])
    keep(record)
    return record


def _ended(record: Record, phase: Phase, step: Step, names: Sequence[str]) -> Mapping[str, Ended]:
    canary = record.hosts[record.canary].tokens_per_s if record.canary else {}
    try:
        found = step(names, canary)
    except KeyboardInterrupt:
        raise _Interrupted(record) from None
    # What a step does not speak of was not done.
    return {name: found.get(name) or Ended(failure=f"{phase} said nothing of it") for name in names}


def _noted(record: Record, name: str, phase: Phase, ended: Ended) -> Record:
    host = record.hosts[name]
    changed = host.changed + ended.changed
    if ended.failure:
        return record.having((name,), stage="failed", because=ended.failure, changed=changed)
    if ended.untried:
        because = f"another host failed before {phase} came to it"
        return record.having((name,), stage="waiting", because=because, changed=changed)
    return record.having((name,), changed=changed, tokens_per_s=dict(ended.tokens_per_s) or host.tokens_per_s)
