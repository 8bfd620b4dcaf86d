"""lpxdoctor collect: write down what the probes see on this host, or on those of an inventory, as evidence."""

import sys
from pathlib import Path

import click

from lpxdoctor import catalog, inventory
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._host import FORKS, ask
from lpxdoctor.collect import LIMIT_S
from lpxdoctor.errors import UsageError
from lpxdoctor.evaluate import probes_of
from lpxdoctor.evidence import Evidence, to_json
from lpxdoctor.files import check_writable, write_whole


@click.command(
    "collect",
    epilog=_options.examples("sudo lpxdoctor collect -o gpu-12.json", "lpxdoctor collect -i inventory.yml -o fleet"),
)
@_options.inventory()
@_options.forks(FORKS)
@click.option("-o", "--output", metavar="FILE|DIR", help="Instead of standard output; with -i a new directory.")
@click.option("--list", "listing", is_flag=True, help="Only list what would be asked.")
@click.option("--anonymous", is_flag=True, help="Replace host name, serials, UUIDs and addresses by placeholders.")
@_options.container_test()
@_options.patience(LIMIT_S)
def command(
    hosts: str | None,
    forks: int,
    output: str | None,
    listing: bool,
    anonymous: bool,
    no_container_test: bool,
    limit_s: float,
) -> int:
    """Write down what this host answers, to be judged elsewhere by `lpxdoctor check --from FILE`.

    With -i every host of an inventory is asked, and a directory written that `lpxdoctor check --from DIR` judges.
    Secrets (keys, tokens, passwords) are masked before anything is written.

    Exit status: 0 it is written, 2 a host did not answer, 64 wrong use.
    """
    probes = probes_of(catalog.load())
    if listing:
        for key in sorted(probe.key for probe in probes):
            print(key)
        return 0
    if hosts:
        if not output:
            raise UsageError("Where to?\nGive -o a new directory, for HOST.json of every host: -o fleet")
        if anonymous:
            raise UsageError("--anonymous is for one host, whose file is to be sent: leave out -i, or --anonymous.")
        from lpxdoctor.cli import _fleet  # noqa: PLC0415 - one host needs none of it

        how = _fleet.Asking(forks=forks, limit_s=limit_s, container_test=not no_container_test)
        return _fleet.record(inventory.parse(hosts), probes, output, how)
    if output:
        check_writable(Path(output))
    evidence = ask(probes, container_test=not no_container_test, limit_s=limit_s)
    if anonymous:
        from lpxdoctor.anonymize import anonymize  # noqa: PLC0415 - only where it is asked for

        evidence = anonymize(evidence)
    text = to_json(evidence)
    if output is None:
        print_document(text)
        return 0
    _write(output, text, evidence)
    return 0


def _write(output: str, text: str, evidence: Evidence) -> None:
    """Write evidence to a private file, and say how to judge it."""
    try:
        write_whole(Path(output), text.encode())
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None
    failures = sum(1 for answer in evidence.answers.values() if answer.failure not in ("", "absent"))
    print(
        f"{len(evidence.answers)} answers in {Path(output)}, {failures} of them a failure to read. "
        f"Judge it: lpxdoctor check --from {output}",
        file=sys.stderr,
    )
