"""What commands on many hosts share: rows from an inventory or from recorded evidence, judged, with a progress line."""

import datetime
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from lpxdoctor import fleet, inventory
from lpxdoctor.check import Check
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import clear, show, write
from lpxdoctor.evaluate import Judgement, evaluate, probes_of
from lpxdoctor.evidence import Evidence, Probe
from lpxdoctor.fleet import NoAnswer, recorded
from lpxdoctor.fleet.spread import spread
from lpxdoctor.inventory import Source
from lpxdoctor.policy import Policy
from lpxdoctor.report.fleet import HostDocument, judged, refused, render
from lpxdoctor.report.fleet import fleet as report_of


@dataclass(frozen=True)
class Judge:
    """What every host is judged by."""

    checks: Sequence[Check[...]]
    policy: Policy
    today: datetime.date

    def judgement(self, evidence: Evidence) -> Judgement:
        """Judge a host that answered."""
        return evaluate(self.checks, evidence, self.policy, self.today)

    def row(self, answer: fleet.Row) -> HostDocument:
        """Return a host's row in the report."""
        name, evidence = answer
        return refused(name, evidence) if isinstance(evidence, NoAnswer) else judged(name, self.judgement(evidence))


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How hosts are asked; as fleet.answers."""

    forks: int
    limit_s: float
    container_test: bool
    reload_test: bool = False


def answers(hosts: Sequence[fleet.FleetHost], probes: Iterable[Probe], how: Asking) -> Generator[fleet.Row]:
    """Yield the hosts' rows as they come, with their number on a terminal."""
    progress = sys.stderr.isatty()
    rows = fleet.answers(hosts, probes, **vars(how))
    try:
        if progress:
            show("hosts", 0, len(hosts))
        for done, row in enumerate(rows, 1):
            if progress:
                show(row[0], done, len(hosts))
            yield row
    finally:
        rows.close()
        if progress:
            clear()


def live(named: Source, judge: Judge, how: Asking) -> tuple[list[HostDocument], Judgement | None]:
    """Return the rows of an inventory's hosts, asked now and judged as they answer; of one alone its judgement too."""
    hosts = fleet.hosts(named)
    alone: Judgement | None = None
    rows: dict[str, HostDocument] = {}
    with closing(answers(hosts, probes_of(judge.checks), how)) as asked:
        for name, answer in asked:
            rows[name] = judge.row((name, answer))
            if len(hosts) == 1 and isinstance(answer, Evidence):
                alone = judge.judgement(answer)
    return [rows[host.name] for host in hosts], alone


def record(named: Source, probes: Iterable[Probe], path: str, how: Asking) -> int:
    """Write every host's evidence below a directory, say who did not answer, and return 2 where one did not."""
    hosts = fleet.hosts(named)
    directory = recorded.prepare(path)
    silent: list[str] = []
    with closing(answers(hosts, probes, how)) as asked:
        for name, answer in asked:
            recorded.write(directory, name, answer)
            if isinstance(answer, NoAnswer):
                silent.append(f"{name} did not answer: {answer.reason}\n  {answer.do}")
    for line in silent:
        print(line, file=sys.stderr)
    print(
        f"{len(hosts) - len(silent)} of {len(hosts)} hosts answered, in {directory}. "
        f"Judge them: lpxdoctor check --from {directory}",
        file=sys.stderr,
    )
    return 2 if silent else 0


def judge_all(
    judge: Judge,
    how: Asking | None,
    sources: Sequence[str],
    hosts: str | None,
    *,
    form: str,
    output: str | None,
    verbose: bool,
) -> int:
    """Judge hosts and report them: asked now where how says how, else by what was recorded; return the exit status."""
    started = time.monotonic()
    if how is None:
        rows, alone, seconds = from_files(sources, hosts, judge), None, None
    else:
        rows, alone = live(inventory.parse(hosts) if hosts else inventory.local(), judge, how)
        seconds = time.monotonic() - started
    return report(rows, alone, form=form, output=output, verbose=verbose, seconds=seconds)


def from_files(paths: Sequence[str], expected: str | None, judge: Judge) -> list[HostDocument]:
    """Return the rows of recorded evidence, judged on all CPUs; a host of the inventory without any is a row too."""
    files = recorded.files(paths)
    done = dict(spread(files, lambda file: msgspec.json.encode(judge.row(recorded.read(file))).decode()))
    rows = [msgspec.json.decode(done[file], type=HostDocument) for file in files]
    return rows + list(_missing(rows, expected)) if expected else rows


def _missing(rows: Sequence[HostDocument], expected: str) -> Iterator[HostDocument]:
    there = {row.name for row in rows}
    for host in fleet.hosts(inventory.parse(expected)):
        if host.name not in there:
            do = f"lpxdoctor collect -i {expected} -o DIR, and judge that."
            yield refused(host.name, NoAnswer("nothing was recorded of it", do))


def report(
    rows: Sequence[HostDocument],
    alone: Judgement | None,
    *,
    form: str,
    output: str | None,
    verbose: bool,
    seconds: float | None,
) -> int:
    """Print the report of a fleet, or in text of one host alone, write its JSON, and return the exit status."""
    document = report_of(rows)
    if output or form == "json":
        text = render(document)
        if output:
            write(output, text)
        if form == "json":
            print_document(text)
    if form == "html":
        from lpxdoctor.report import fleet_html  # noqa: PLC0415 - each form is imported where it is asked for

        print_document(fleet_html.render(document))
    if form == "text":
        from rich.console import Console  # noqa: PLC0415

        from lpxdoctor.report import fleet_text  # noqa: PLC0415
        from lpxdoctor.report import text as in_full  # noqa: PLC0415

        if alone:
            in_full.render(alone, Console(), seconds=seconds, verbose=verbose)
        else:
            fleet_text.render(document, Console(), seconds=seconds, verbose=verbose)
    return document.exit_code
