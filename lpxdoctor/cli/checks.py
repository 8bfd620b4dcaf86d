"""lpxdoctor checks: list the checks."""

import sys

import click

from lpxdoctor import catalog
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document


@click.command("checks", epilog=_options.examples("lpxdoctor checks | grep nouveau"))
@_options.output_format()
@_options.site_checks()
def command(form: str, no_site_checks: bool) -> int:
    """List the checks: id, severity, title.

    Exit status: 0 listed, 64 wrong use.
    """
    checks = catalog.load(None if no_site_checks else catalog.SITE_CHECKS)
    if form == "json":
        from lpxdoctor.report.checks import to_json  # noqa: PLC0415 - each form is imported where it is asked for

        print_document(to_json(checks))
        return 0
    width = max(len(check.id) for check in checks)
    for check in checks:
        print(f"{check.id.ljust(width)}  {check.severity.value.ljust(4)}  {check.title}")
    print(f"{len(checks)} checks. lpxdoctor explain ID tells more.", file=sys.stderr)
    return 0
