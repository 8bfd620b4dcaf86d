"""Hosts' judgements in, the fleet's document of schema 1 out.

The text and the HTML page of a fleet are made from this document alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from lpxdoctor import __version__
from lpxdoctor.evaluate import Judgement
from lpxdoctor.fleet import NoAnswer
from lpxdoctor.fleet.drift import Drift, drifts
from lpxdoctor.fleet.rules import RULES
from lpxdoctor.fleet.traits import traits
from lpxdoctor.fleet.twins import Identity, Twin, identity, twins
from lpxdoctor.report.json import Document, FindingDocument, document

SCHEMA: Literal[1] = 1
VerdictWord = Literal["healthy", "warning", "failed", "unknown", "no answer"]
# The worst first.
ORDER: tuple[VerdictWord, ...] = ("failed", "no answer", "unknown", "warning", "healthy")
_VERDICTS: Mapping[str, VerdictWord] = {"fail": "failed", "warn": "warning"}
_EXIT: Mapping[VerdictWord, int] = {"failed": 2, "no answer": 2, "unknown": 3, "warning": 1, "healthy": 0}


class NoAnswerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Why a host gave no evidence, and what to do about it."""

    reason: str
    do: str


class HostDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One host under its name in the inventory: either report or no_answer is there.

    facts are what hosts of a fleet should have in common, such as {"kernel": "6.8.0-88-generic"}; what could not be
    read is left out. report is the document of `lpxdoctor check --format json`.
    """

    name: str
    verdict: VerdictWord
    facts: dict[str, str]
    identity: Identity | None = None
    no_answer: NoAnswerDocument | None = None
    report: Document | None = None

    @property
    def cause(self) -> FindingDocument | None:
        """The first of what was found that counts: a failure or a warning, the root cause first."""
        worse = self.report.findings if self.report else ()
        return next((finding for finding in worse if finding.severity != "info"), None)


class SummaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many hosts are what; the five numbers add up to hosts."""

    hosts: int
    healthy: int
    warning: int
    failed: int
    unknown: int
    no_answer: int


class ValueDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A value and the hosts that have it."""

    value: str
    hosts: tuple[str, ...]


class DriftDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A fact in which hosts differ. majority is "" where no value is that of more than half of them."""

    fact: str
    majority: str
    majority_hosts: int
    others: tuple[ValueDocument, ...]


class FleetFindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with several hosts together, and with none of them by itself."""

    id: str
    severity: Literal["fail", "warn"]
    message: str
    hosts: tuple[str, ...]
    why: str
    fix: str


class FleetDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a fleet: a row for every host that was expected, in the inventory's order."""

    schema: Literal[1]
    lpxdoctor: str
    summary: SummaryDocument
    findings: tuple[FleetFindingDocument, ...]
    odd_ones_out: tuple[DriftDocument, ...]
    hosts: tuple[HostDocument, ...]

    @property
    def exit_code(self) -> int:
        """The worst host's, or of what is wrong with several together; 70 where a check crashed and nothing failed."""
        found = {host.verdict for host in self.hosts} | {_VERDICTS[finding.severity] for finding in self.findings}
        status = next((_EXIT[word] for word in ORDER if word in found), _EXIT["unknown"])
        crashed = any("crashed" in host.report.checks.values() for host in self.hosts if host.report)
        return 70 if crashed and status != _EXIT["failed"] else status


def judged(name: str, judgement: Judgement) -> HostDocument:
    """Return the row of a host that answered."""
    report = document(judgement)
    return HostDocument(
        name=name,
        verdict=report.verdict,
        facts=traits(judgement.facts),
        identity=identity(judgement.facts),
        report=report,
    )


def refused(name: str, why: NoAnswer) -> HostDocument:
    """Return the row of a host that did not."""
    return HostDocument(
        name=name, verdict="no answer", facts={}, no_answer=NoAnswerDocument(reason=why.reason, do=why.do)
    )


def fleet(hosts: Iterable[HostDocument]) -> FleetDocument:
    """Return the report of a fleet; two hosts of one name get a number."""
    rows = tuple(_named_apart(hosts))
    counts = Counter(row.verdict for row in rows)
    return FleetDocument(
        schema=SCHEMA,
        lpxdoctor=__version__,
        summary=SummaryDocument(
            hosts=len(rows),
            healthy=counts["healthy"],
            warning=counts["warning"],
            failed=counts["failed"],
            unknown=counts["unknown"],
            no_answer=counts["no answer"],
        ),
        findings=tuple(map(_finding, twins({row.name: row.identity for row in rows if row.identity}))),
        odd_ones_out=tuple(map(_drift, drifts({row.name: row.facts for row in rows}))),
        hosts=rows,
    )


def causes(hosts: Iterable[HostDocument]) -> Mapping[str, Sequence[str]]:
    """Return cause -> the hosts that have it, the most frequent first."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        if host.cause:
            groups.setdefault(host.cause.id, []).append(host.name)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def _named_apart(hosts: Iterable[HostDocument]) -> Iterable[HostDocument]:
    seen: Counter[str] = Counter()
    for host in hosts:
        seen[host.name] += 1
        count = seen[host.name]
        yield host if count == 1 else msgspec.structs.replace(host, name=f"{host.name} ({count})")


def _finding(twin: Twin) -> FleetFindingDocument:
    rule = RULES[twin.kind]
    return FleetFindingDocument(
        id=rule.id,
        severity=rule.severity,
        message=rule.message.format(hosts=", ".join(twin.hosts), what=twin.what),
        hosts=twin.hosts,
        why=rule.why,
        fix=rule.cure,
    )


def _drift(drift: Drift) -> DriftDocument:
    return DriftDocument(
        fact=drift.trait,
        majority=drift.majority,
        majority_hosts=drift.majority_hosts,
        others=tuple(ValueDocument(value=value, hosts=hosts) for value, hosts in drift.others),
    )


def render(report: FleetDocument) -> str:
    """Return the report as JSON text, a host a line: a thousand of them stay readable by line."""
    rows = ",\n".join(msgspec.json.encode(host).decode() for host in report.hosts)
    head = msgspec.json.encode(msgspec.structs.replace(report, hosts=())).decode()
    assert head.endswith('"hosts":[]}')
    return head.removesuffix("]}") + f"\n{rows}\n]}}\n"
