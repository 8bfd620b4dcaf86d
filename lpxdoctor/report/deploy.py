"""What became of engines on hosts in, text or JSON of schema 1 out."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from lpxdoctor.deploy.difference import changed_lines
from lpxdoctor.deploy.rollout import Change, HostResult
from lpxdoctor.deploy.variant import Choice
from lpxdoctor.deployments import Deployment
from lpxdoctor.report.encoding import pretty


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A task that changed something, or would; lines: what went (-) and came (+), as far as the task says so."""

    task: str
    lines: tuple[str, ...]


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host: its engine and why this one.

    started_s: seconds until it answered, null where it ran already and for a plan. deployment is null for a plan.
    """

    host: str
    variant: str
    reason: str
    changes: tuple[ChangeDocument, ...]
    started_s: float | None
    exposed: bool  # whether more than its host can reach the engine
    deployment: Deployment | None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts. plan: whether all this would only be."""

    schema: Literal[1] = 1
    plan: bool
    hosts: tuple[HostDocument, ...]


class GoneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host; removed: whether there was anything to take away."""

    host: str
    removed: bool


class UndeployDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an engine that is not wanted any more."""

    schema: Literal[1] = 1
    name: str
    hosts: tuple[GoneDocument, ...]


def to_json(results: Sequence[HostResult], *, plan: bool) -> str:
    """Return the results as JSON text."""
    return pretty(Document(plan=plan, hosts=tuple(map(_host, results))))


def gone_json(name: str, changed: Mapping[str, int]) -> str:
    """Return what undeploy did, host -> changed tasks, as JSON text."""
    hosts = tuple(GoneDocument(host=host, removed=bool(count)) for host, count in changed.items())
    return pretty(UndeployDocument(name=name, hosts=hosts))


def gone_text(name: str, changed: Mapping[str, int]) -> str:
    """Return a line for each host."""
    return "\n".join(
        f"{host}: {name} is gone" if count else f"{host}: there was no {name}" for host, count in changed.items()
    )


def text(results: Sequence[HostResult], *, plan: bool) -> str:
    """Return where each engine is and how to go on, or what would change."""
    return "\n".join(line for result in results for line in (_planned(result) if plan else _deployed(result)))


def _host(result: HostResult) -> HostDocument:
    return HostDocument(
        host=result.host,
        variant=result.choice.variant.name,
        reason=_reason(result.choice),
        changes=tuple(ChangeDocument(task=change.task, lines=_lines(change)) for change in result.changes),
        started_s=result.seconds,
        exposed=result.exposed,
        deployment=result.deployment,
    )


def _planned(result: HostResult) -> list[str]:
    choice = result.choice
    engine = f"{choice.own_image or f'engine {choice.variant.engine}'} ({_why(choice)})"
    if not result.changes:
        return [f"{result.host}: nothing would change; {engine}"]
    changes = (line for change in result.changes for line in (f"  {change.task}", *_indented(change)))
    return [f"{result.host}: would change; {engine}", *changes]


def _why(choice: Choice) -> str:
    return f"{choice.variant.name}: {_reason(choice)}"


def _reason(choice: Choice) -> str:
    return "your own image, started as this variant is" if choice.own_image else choice.reason


def _indented(change: Change) -> list[str]:
    return [f"    {line}" for line in _lines(change)]


def _lines(change: Change) -> tuple[str, ...]:
    return tuple(line for diff in change.diff for line in changed_lines(diff.get("before"), diff.get("after")))


def _deployed(result: HostResult) -> list[str]:
    deployed = result.deployment
    assert deployed is not None
    on = "" if not deployed.ssh else f" on {result.host}"
    started = f"ready after {result.seconds:.0f} s" if result.seconds is not None else "changed"
    done = started if result.changes else "nothing to change"
    exposed = "  note   the network can reach it, and its key guards only part of its paths: put a proxy before it"
    version = deployed.engine_version or "of unknown version"
    return [
        f"{deployed.name}{on}: vLLM {version} serves {deployed.served_model}; {done}",
        f"  url    {deployed.url}{on}",
        f"  key    {deployed.api_key_file}{on}",
        f"  image  {deployed.image} ({_why(result.choice)})",
        *([exposed] if result.exposed else []),
        f"  next   lpxdoctor baseline {deployed.name}",
    ]
