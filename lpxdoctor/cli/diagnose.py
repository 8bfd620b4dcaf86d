"""lpxdoctor diagnose: read what people paste or send, or look at this host for a symptom, and name one root cause."""

import datetime
import sys
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from lpxdoctor import catalog, policy
from lpxdoctor.check import Check
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import ask
from lpxdoctor.collect import LIMIT_S
from lpxdoctor.errors import UsageError
from lpxdoctor.evaluate import Judgement, Result, evaluate, probes_of
from lpxdoctor.facts import symptoms
from lpxdoctor.policy import Policy
from lpxdoctor.recognize import Recognition, recognize
from lpxdoctor.recognize.answers import JUDGED
from lpxdoctor.recognize.questions import Question, questions
from lpxdoctor.recognize.unpack import Packed

# The words of the checks that may explain a symptom, by the word of the one that it speaks of; else that word alone.
_RELATED = {
    "boot": ("boot", "driver"),
    "driver": ("driver", "boot"),
    "gpu": ("gpu", "host"),
    "host": ("host", "gpu", "fabric", "engine"),  # as where several GPUs wait for each other
    "decode": ("decode", "engine", "cuda", "gpu", "host"),
}


@click.command(
    "diagnose",
    epilog=_options.examples("lpxdoctor diagnose report.txt", "docker logs vllm 2>&1 | lpxdoctor diagnose -"),
)
@click.argument("source", metavar="[FILE|-]", required=False)
@click.option("--symptom", metavar="TEXT", help="Look at this host for what would explain it, instead of a file.")
@_options.output_format()
@click.option("-v", "--verbose", is_flag=True, help="Every finding in full.")
def command(source: str | None, symptom: str | None, form: str, verbose: bool) -> int:
    """Name the cause in what people paste or send, or of a symptom that you tell.

    FILE, or standard input for "-", may hold a bug report, docker logs, dmesg or journal, an installer's log, tables of
    nvidia-smi, nvidia-bug-report.log.gz, collect_env, an archive of sos or evidence of lpxdoctor, in any mix and with
    prose between.

    Exit status: 0 nothing worse than a note (of evidence or of this host: a text never makes a host healthy),
    1 warnings, 2 a failure, 3 nothing decided, 64 wrong use.
    """
    if (source is None) == (symptom is None):
        raise UsageError('Give a file, - for standard input, or --symptom "what happens".')
    checks, rules = catalog.load(), policy.load()
    if symptom is not None:
        judgement = _look(symptom, checks, rules)
        _report_host(judgement, form, verbose=verbose)
        return judgement.status
    recognition = _read(source or "-")
    judgement = judge(recognition, checks, rules)
    if recognition.whole and not recognition.proofs:
        _report_host(judgement, form, verbose=verbose)
    else:
        _report_text(judgement, recognition, form, verbose=verbose)
    return judgement.status


def judge(recognition: Recognition, checks: tuple[Check[...], ...], rules: Policy) -> Judgement:
    """Judge what was recognized: collected evidence as check does, an excerpt by what it shows."""
    today = datetime.date.today()  # noqa: DTZ011 - a waiver ends on a local day
    if recognition.whole:
        return evaluate(checks, recognition.evidence, rules, today, proofs=recognition.proofs)
    judgement = evaluate(checks, recognition.evidence, rules, proofs=recognition.proofs, judged=JUDGED)
    return replace(judgement, results=tuple(map(_to_confirm, judgement.results)))


def _to_confirm(result: Result) -> Result:
    """Say of what an excerpt shows how to be sure: on the host itself the check sees everything."""
    on_host = (f"sudo lpxdoctor check {result.check.id}",)
    findings = (replace(finding, confirm=finding.confirm or on_host) for finding in result.findings)
    return replace(result, findings=tuple(findings))


# --- a text -----------------------------------------------------------------------------------------------------------


def _read(source: str) -> Recognition:
    try:
        if source == "-":
            recognition = _recognized(sys.stdin.buffer, "standard input")
        else:
            with Path(source).open("rb") as file:
                recognition = _recognized(file, source)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}.") from None
    if recognition.pasted.binary and not (recognition.proofs or recognition.whole):
        raise UsageError(
            f"{source} does not look like text or like an archive that lpxdoctor reads: nothing was recognized"
        )
    return recognition


def _recognized(stream: BinaryIO, name: str) -> Recognition:
    try:
        recognition = recognize(stream)
    except Packed as how:
        raise UsageError(f"{name} is packed in a way that is not read here. Type: {how}") from None
    if not recognition.pasted.total_lines and not recognition.whole:
        raise UsageError(f"{name}: {recognition.notes[0]}" if recognition.notes else f"{name} is empty")
    return recognition


def _report_text(judgement: Judgement, recognition: Recognition, form: str, *, verbose: bool) -> None:
    undecided = not any(result.rank < 2 for result in judgement.found)  # 2: only possible
    open_ones = questions(recognition.about, shown=bool(judgement.found)) if undecided else ()
    if form == "json":
        print_document(_json(judgement, open_ones))
        for note in recognition.notes:  # what was left out, which the document has no place for
            print(f"lpxdoctor: {note}", file=sys.stderr)
        return
    from rich.console import Console  # noqa: PLC0415 - each form is imported where it is asked for

    from lpxdoctor.report import diagnosis  # noqa: PLC0415

    diagnosis.render(judgement, recognition, open_ones, Console(), verbose=verbose)


def _json(judgement: Judgement, open_ones: tuple[Question, ...] = ()) -> str:
    from lpxdoctor.report import json  # noqa: PLC0415

    asked = tuple(json.QuestionDocument(layer=q.layer, question=q.ask, command=q.command) for q in open_ones)
    return json.render(judgement, asked)


# --- this host --------------------------------------------------------------------------------------------------------


def _look(symptom: str, checks: tuple[Check[...], ...], rules: Policy) -> Judgement:
    """Ask this host what the checks need that may explain a symptom; all checks where the symptom is not known."""
    told = symptoms.answer(symptom)
    chosen = _matching({each["check"] for each in told.value}, checks)
    if not chosen:
        print("This symptom is not known to lpxdoctor, so every check is run.", file=sys.stderr)
        chosen = checks
    evidence = ask(probes_of(chosen), container_test=True, limit_s=LIMIT_S)
    evidence = replace(evidence, answers={**evidence.answers, symptoms.KEY: told})
    return evaluate(chosen, evidence, rules, datetime.date.today())  # noqa: DTZ011 - a waiver ends on a local day


def _matching(ids: set[str], checks: tuple[Check[...], ...]) -> tuple[Check[...], ...]:
    """Return the checks of these ids and of their words, and all that they follow from."""
    words = {word for id_ in ids for word in _RELATED.get(id_.partition(".")[0], (id_.partition(".")[0],))}
    wanted: set[str] = set()
    for check in reversed(checks):  # each stands behind what it follows from
        if check.id in wanted or check.id.partition(".")[0] in words:
            wanted |= {check.id, *check.after}
    return tuple(check for check in checks if check.id in wanted)


def _report_host(judgement: Judgement, form: str, *, verbose: bool) -> None:
    if form == "json":
        print_document(_json(judgement))
        return
    from rich.console import Console  # noqa: PLC0415

    from lpxdoctor.report import text  # noqa: PLC0415

    text.render(judgement, Console(), verbose=verbose)
