"""A playbook on a lab host: variables and tags in; what changed, or why it failed in the words that people get, out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lpxdoctor import inventory, playbook
from lpxdoctor.playbook import State, TaskEvent
from tests.lab.hosts import Host


@dataclass(frozen=True)
class Played:
    """What a run did: the names of changed tasks, their modules' own words, and the failure's message, "" for none."""

    changed: tuple[str, ...]
    said: tuple[str, ...]
    failure: str


Play = Callable[..., Played]


def player(collections: Path) -> Play:
    """Return what runs a playbook on a host as lpxdoctor does."""

    def play(name: str, host: Host, *tags: str, check: bool = False, **variables: object) -> Played:
        seen: list[TaskEvent] = []
        sources = [inventory.for_hosts({host.name: {**host.inventory(), **variables}})]
        outcome = playbook.run(name, sources, collections=collections, on_event=seen.append, check=check, tags=tags)
        changed = tuple(event.task for event in seen if event.state is State.CHANGED)
        said = tuple(text for event in seen for text in event.result.get("said") or ())
        failures = outcome.failed.get(host.name, ())
        return Played(changed, said, "\n".join(event.message for event in failures))

    return play
