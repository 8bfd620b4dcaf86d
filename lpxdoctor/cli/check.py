"""lpxdoctor check: ask this host, the hosts of an inventory, or read evidence; judge it and report."""

import datetime
import time
from importlib import import_module
from pathlib import Path

import click

from lpxdoctor import catalog, policy
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import FORKS, ask, is_fleet, read_evidence, write
from lpxdoctor.collect import LIMIT_S
from lpxdoctor.evaluate import Judgement, evaluate, probes_of
from lpxdoctor.files import check_writable

# What it needs acts on the host, so it is judged only where a person names it.
_RELOAD_CHECK = "container.reload-lost-gpu"


@click.command("check", epilog=_options.examples("sudo lpxdoctor check", "lpxdoctor check -i root@gpu-1,root@gpu-2"))
@click.argument("ids", nargs=-1, metavar="[ID]...")
@_options.inventory("With --from, the hosts that are expected.")
@_options.forks(FORKS)
@click.option(
    *("--from", "sources"),
    metavar="FILE|DIR",
    multiple=True,
    help=f"Judge {_options.EVIDENCE}; a directory, or more than one, is a fleet.",
)
@_options.output_format(("text", "json", "html"))
@click.option("-o", "--output", metavar="FILE", help="Also write the JSON report to a file.")
@click.option("-v", "--verbose", is_flag=True, help="Every finding in full, and a line for every check.")
@_options.container_test()
@_options.patience(LIMIT_S)
@_options.policy()
@_options.site_checks()
def command(
    ids: tuple[str, ...],
    hosts: str | None,
    forks: int,
    sources: tuple[str, ...],
    form: str,
    output: str | None,
    verbose: bool,
    no_container_test: bool,
    limit_s: float,
    policy_file: str | None,
    no_site_checks: bool,
) -> int:
    """Judge this host, or every host of an inventory, and name one root cause of each.

    With IDs, only these checks and what they follow from are judged. container.reload-lost-gpu is tried only when it is
    named: it makes systemd reload.

    Exit status, of several hosts that of the worst: 0 nothing worse than a note, 1 warnings, 2 a failure or a host that
    does not answer, 3 too little could be judged, 64 wrong use.
    """
    started = time.monotonic()
    if output:
        check_writable(Path(output))
    checks = catalog.chosen(catalog.load(None if no_site_checks else catalog.SITE_CHECKS), ids)
    site = policy.load(Path(policy_file) if policy_file else None)
    tests = {"container_test": not no_container_test, "reload_test": _RELOAD_CHECK in ids}
    if hosts or form == "html" or is_fleet(sources):
        from lpxdoctor.cli import _fleet  # noqa: PLC0415 - one host needs none of it

        judge = _fleet.Judge(checks, site, _today())
        how = None if sources else _fleet.Asking(forks=forks, limit_s=limit_s, **tests)
        return _fleet.judge_all(judge, how, sources, hosts, form=form, output=output, verbose=verbose)
    if sources:
        evidence = read_evidence(sources[0])
    else:
        meanwhile = _load_report if form == "text" else None
        evidence = ask(probes_of(checks), **tests, limit_s=limit_s, meanwhile=meanwhile)
    judgement = evaluate(checks, evidence, site, _today())
    seconds = None if sources else time.monotonic() - started
    _report(judgement, form, output, seconds, verbose=verbose)
    return judgement.status


def _report(judgement: Judgement, form: str, output: str | None, seconds: float | None, *, verbose: bool) -> None:
    if form == "json" or output:
        from lpxdoctor.report import json  # noqa: PLC0415 - each form is imported where it is asked for

        text = json.render(judgement)
        if output:
            write(output, text)
        if form == "json":
            print_document(text)
    if form == "text":
        from rich.console import Console  # noqa: PLC0415

        from lpxdoctor.report import text as report  # noqa: PLC0415

        report.render(judgement, Console(), seconds=seconds, verbose=verbose)


def _today() -> datetime.date:
    return datetime.date.today()  # noqa: DTZ011 - a waiver ends on a local day


def _load_report() -> None:
    """Import what the text needs: while the host answers, this costs no time."""
    import_module("lpxdoctor.report.text")
