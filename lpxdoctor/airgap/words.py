"""What playbooks install: their words, a target and the roles' variables in; package names and repositories out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpxdoctor import inventory, playbook
from lpxdoctor.airgap.target import Target
from lpxdoctor.deploy import failures
from lpxdoctor.errors import SetupError, UsageError
from lpxdoctor.playbook import State, TaskEvent

WORDS = ("boot", "driver", "container")  # in the order of site.yml
ANSWER = "Say what this role installs"  # the task whose result is read
_LIMIT_S = 120.0


@dataclass(frozen=True)
class Plan:
    """What is to be fetched for some playbooks."""

    packages: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()  # taken where a repository has them
    sources: tuple[Mapping[str, Any], ...] = ()  # besides the distribution's, as the roles' packages.yml say them
    preferences: tuple[str, ...] = ()  # of apt: which of several versions
    streams: tuple[str, ...] = ()  # of dnf: NAME:STREAM of modules
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what was chosen, to be told to the roles


def plan(
    words: Sequence[str], target: Target, kernels: Sequence[str], variables: Mapping[str, Any], collections: Path
) -> Plan:
    """Return what the roles themselves say that they would install on the target with these variables.

    Args:
        words: the roles.
        target: the system of the hosts.
        kernels: releases, as uname -r says; the running one first.
        variables: of the roles.
        collections: as playbook.run takes it.

    Raises:
        UsageError: the role driver is asked and no kernel is known.
        SetupError: a role could not say it.
    """
    if not words:
        return Plan()
    if "driver" in words and not kernels:
        raise UsageError(
            "For which kernels?\nThe driver's module needs headers of each: --kernel RELEASE, as uname -r says there."
        )
    told: list[Mapping[str, Any]] = []

    def on_event(event: TaskEvent) -> None:
        if event.task == ANSWER and event.state is State.OK:
            told.append(event.result["msg"])

    asked = {"bundle_words": list(words), "bundle_facts": _facts(target), "bundle_kernels": list(kernels)}
    given = {"all": {"vars": {**variables, **asked}}}
    outcome = playbook.run(
        "bundle_plan", [inventory.local(), given], collections=collections, on_event=on_event, limit_s=_LIMIT_S
    )
    if outcome.failed or len(told) != len(words):
        why = "\n".join(failures.explain(events, host) for host, events in outcome.failed.items())
        raise SetupError(f"What {', '.join(words)} install on {target.name} could not be told:\n{why}")
    return _plan(told)


def _plan(told: Sequence[Mapping[str, Any]]) -> Plan:
    def all_of(key: str) -> Iterator[Any]:
        return (value for one in told for value in one.get(key, ()))

    return Plan(
        packages=tuple(dict.fromkeys(all_of("packages"))),
        optional=tuple(dict.fromkeys(all_of("optional"))),
        sources=tuple(all_of("sources")),
        preferences=tuple(one["preferences"] for one in told if one.get("preferences")),
        streams=tuple(all_of("streams")),
        variables={name: value for one in told for name, value in one.get("variables", {}).items()},
    )


def _facts(target: Target) -> dict[str, str]:
    return {
        "id": target.distribution,
        # As Ansible names it.
        "distribution": "RedHat" if target.distribution == "rhel" else target.distribution.capitalize(),
        "os_family": "RedHat" if target.manager == "dnf" else "Debian",
        "pkg_mgr": target.manager,
        "distribution_release": target.codename,
        "distribution_version": target.version,
        "distribution_major_version": target.version.partition(".")[0],
        "architecture": target.machine,
    }
