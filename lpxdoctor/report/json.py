"""A judgement in, the JSON document of schema 1 out."""

from typing import Literal

import msgspec

from lpxdoctor import __version__
from lpxdoctor.check import Layer
from lpxdoctor.evaluate import Judgement, Result, State
from lpxdoctor.report.encoding import pretty
from lpxdoctor.report.steps import steps

SCHEMA: Literal[1] = 1
SeverityWord = Literal["fail", "warn", "info"]
VerdictWord = Literal["healthy", "warning", "failed", "unknown"]


class SeenDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One observation: what it is, its value, and where it was read."""

    what: str
    value: str
    where: str


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. fix is prose or commands, a line each; blocked are the checks that wait for it.

    confirm is what to run to be sure, or to decide between causes: empty where the host itself was asked.
    """

    id: str
    severity: SeverityWord
    layer: Layer
    subject: str
    title: str
    message: str
    why: str
    fix: str
    blocked: tuple[str, ...]
    evidence: tuple[SeenDocument, ...]
    confirm: tuple[str, ...] = ()


class UnknownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A check that could not be judged, and why."""

    id: str
    reason: str


class WaivedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A check whose findings the site accepts until a date (YYYY-MM-DD)."""

    id: str
    reason: str
    until: str


class QuestionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What to look at next where a text does not decide: in which layer, what, and the command that shows it."""

    layer: str
    question: str
    command: str


class CoverageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the checks that apply to this host were judged."""

    ran: int
    of: int


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The report: findings in order, the root cause first; checks gives every check's state.

    steps is what to type against all failures, in this order, a reboot once and last. questions is empty but for a
    diagnosis that what was given does not decide.
    """

    schema: Literal[1]
    lpxdoctor: str
    host: str
    verdict: VerdictWord
    coverage: CoverageDocument
    findings: tuple[FindingDocument, ...]
    unknown: tuple[UnknownDocument, ...]
    waived: tuple[WaivedDocument, ...]
    checks: dict[str, str]
    steps: tuple[str, ...] = ()
    questions: tuple[QuestionDocument, ...] = ()


def document(judgement: Judgement, questions: tuple[QuestionDocument, ...] = ()) -> Document:
    """Return the report of a judgement as a typed value."""
    ran, of = judgement.coverage
    waivers = [(result.check.id, result.waiver) for result in judgement.results if result.waiver]
    return Document(
        schema=SCHEMA,
        lpxdoctor=__version__,
        host=judgement.host,
        verdict=_VERDICTS[judgement.verdict.name],
        coverage=CoverageDocument(ran=ran, of=of),
        findings=tuple(entry for result in judgement.found for entry in _findings(judgement, result)),
        unknown=tuple(
            UnknownDocument(id=result.check.id, reason=result.reason)
            for result in judgement.of(State.UNKNOWN, State.CRASHED)
        ),
        waived=tuple(WaivedDocument(id=id_, reason=w.reason, until=w.until.isoformat()) for id_, w in waivers),
        checks={result.check.id: result.state.value for result in judgement.results},
        steps=steps(judgement),
        questions=questions,
    )


_VERDICTS: dict[str, VerdictWord] = {
    "HEALTHY": "healthy",
    "WARNING": "warning",
    "FAILED": "failed",
    "UNKNOWN": "unknown",
}


def _findings(judgement: Judgement, result: Result) -> list[FindingDocument]:
    check = result.check
    return [
        FindingDocument(
            id=check.id,
            severity=result.severity.value,
            layer=check.layer,
            subject=finding.subject,
            title=check.title,
            message=finding.message,
            why=check.why,
            fix="\n".join(finding.do) or check.cure,
            blocked=judgement.blocked_by(check.id),
            evidence=tuple(SeenDocument(what=s.what, value=s.value, where=s.where) for s in finding.seen),
            confirm=finding.confirm,
        )
        for finding in result.findings
    ]


def render(judgement: Judgement, questions: tuple[QuestionDocument, ...] = ()) -> str:
    """Return the report as indented JSON text."""
    return pretty(document(judgement, questions))
