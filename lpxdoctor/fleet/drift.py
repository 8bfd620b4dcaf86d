"""Odd ones out: the traits of every host in, for each trait that differs what most have and who has something else."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One trait in which hosts differ.

    majority is what more than half of the hosts that have the trait say, "" where no value has so many; others are the
    remaining values with their hosts, the most frequent first.
    """

    trait: str
    majority: str
    majority_hosts: int
    others: tuple[tuple[str, tuple[str, ...]], ...]


def drifts(fleet: Mapping[str, Mapping[str, str]]) -> tuple[Drift, ...]:
    """Return the traits in which the hosts differ: host -> trait -> value; hosts without a trait do not count there."""
    groups: dict[str, dict[str, list[str]]] = {}
    for host, own in fleet.items():
        for trait, value in own.items():
            groups.setdefault(trait, {}).setdefault(value, []).append(host)
    return tuple(_drift(trait, values) for trait, values in groups.items() if len(values) > 1)


def _drift(trait: str, values: Mapping[str, list[str]]) -> Drift:
    ranked = sorted(values.items(), key=lambda item: -len(item[1]))
    (value, hosts), total = ranked[0], sum(len(hosts) for hosts in values.values())
    most = len(hosts) * 2 > total
    return Drift(
        trait=trait,
        majority=value if most else "",
        majority_hosts=len(hosts) if most else 0,
        others=tuple((value, tuple(hosts)) for value, hosts in (ranked[1:] if most else ranked)),
    )
