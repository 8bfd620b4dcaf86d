"""What playbooks install: their words, a target and the roles' variables in; package names and repositories out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpxdoctor import inventory, playbook
from lpxdoctor.airgap.target import Target
from lpxdoctor.deploy import failures
from lpxdoctor.errors import SetupError
from lpxdoctor.playbook import State, TaskEvent

WORDS = ("boot", "driver", "container")  # in the order of site.yml
ANSWER = "Say what this role installs"  # the task whose result is read
_LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Repository:
    """An apt repository besides the distribution's."""

    line: str  # URI SUITE [COMPONENT]...
    key_url: str


@dataclass(frozen=True)
class Plan:
    """What is to be fetched for some playbooks."""

    packages: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()


def plan(words: Sequence[str], target: Target, variables: Mapping[str, Any], collections: Path) -> Plan:
    """Return what the roles themselves say that they would install on the target with these variables.

    Raises:
        SetupError: a role could not say it.
    """
    if not words:
        return Plan()
    told: list[Mapping[str, Any]] = []

    def on_event(event: TaskEvent) -> None:
        if event.task == ANSWER and event.state is State.OK:
            told.append(event.result["msg"])

    given = {"all": {"vars": {**variables, "bundle_words": list(words), "bundle_facts": _facts(target)}}}
    outcome = playbook.run(
        "bundle_plan", [inventory.local(), given], collections=collections, on_event=on_event, limit_s=_LIMIT_S
    )
    if outcome.failed or len(told) != len(words):
        why = "\n".join(failures.explain(events, host) for host, events in outcome.failed.items())
        raise SetupError(f"What {', '.join(words)} install on {target.name} could not be told:\n{why}")
    return Plan(
        packages=tuple(dict.fromkeys(name for one in told for name in one["packages"])),
        repositories=tuple(
            Repository(line=source["line"].replace("$(ARCH)", target.architecture), key_url=source["key"])
            for one in told
            for source in one["sources"]
        ),
    )


def _facts(target: Target) -> dict[str, str]:
    return {
        "distribution": target.distribution.capitalize(),
        "distribution_release": target.codename,
        "distribution_version": target.version,
        "distribution_major_version": target.version.partition(".")[0],
        "architecture": target.machine,
    }
