"""The checks, or one of them with its reasons, in; their JSON of schema 1 out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from lpxdoctor import bundled
from lpxdoctor.check import Check, Layer
from lpxdoctor.report.encoding import pretty
from lpxdoctor.report.json import SeverityWord

if TYPE_CHECKING:
    from lpxdoctor.fleet.rules import Rule


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One check. It is not judged while one of after fails; fix is the word of its playbook, null for none."""

    id: str
    severity: SeverityWord
    layer: Layer
    title: str
    after: tuple[str, ...]
    fix: str | None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, in the order of the chain."""

    schema: Literal[1] = 1
    checks: tuple[CheckDocument, ...]


class ExplainedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an id means. layer is null for what is judged of several hosts together.

    playbook is what puts it right, null for none; it is not judged while one of after fails, nor one of before while it
    does.
    """

    schema: Literal[1] = 1
    id: str
    severity: SeverityWord
    layer: Layer | None
    title: str
    why: str
    fix: str
    source: str
    playbook: str | None
    after: tuple[str, ...]
    before: tuple[str, ...]


def to_json(checks: Sequence[Check[...]]) -> str:
    """Return the checks as JSON text."""
    rows = (
        CheckDocument(
            id=check.id,
            severity=check.severity.value,
            layer=check.layer,
            title=check.title,
            after=tuple(check.after),
            fix=check.fix or None,
        )
        for check in checks
    )
    return pretty(Document(checks=tuple(rows)))


def explained(check: Check[...], checks: Sequence[Check[...]]) -> ExplainedDocument:
    """Return what is known of a check, which is one of checks."""
    return ExplainedDocument(
        id=check.id,
        severity=check.severity.value,
        layer=check.layer,
        title=check.title,
        why=check.why,
        fix=check.cure,
        source=check.source,
        playbook=check.fix if check.fix and (bundled.PLAYBOOKS / f"{check.fix}.yml").exists() else None,
        after=tuple(check.after),
        before=tuple(other.id for other in checks if check.id in other.after),
    )


def explained_rule(rule: "Rule") -> ExplainedDocument:
    """Return what is known of a rule of hosts together."""
    return ExplainedDocument(
        id=rule.id,
        severity=rule.severity,
        layer=None,
        title=rule.title,
        why=rule.why,
        fix=rule.cure,
        source=rule.source,
        playbook=None,
        after=(),
        before=(),
    )
