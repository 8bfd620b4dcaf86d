"""lpxdoctor checks: list the checks."""

import sys

import click
import msgspec

from lpxdoctor import catalog
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document


@click.command("checks")
@_options.output_format()
@_options.site_checks()
def command(form: str, no_site_checks: bool) -> int:
    """List the checks: id, severity, title."""
    checks = catalog.load(None if no_site_checks else catalog.SITE_CHECKS)
    if form == "json":
        rows = [
            {
                "id": check.id,
                "severity": check.severity.value,
                "layer": check.layer,
                "title": check.title,
                "after": check.after,
                "fix": check.fix,
            }
            for check in checks
        ]
        print_document(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n")
        return 0
    width = max(len(check.id) for check in checks)
    for check in checks:
        print(f"{check.id.ljust(width)}  {check.severity.value.ljust(4)}  {check.title}")
    print(f"{len(checks)} checks. lpxdoctor explain ID tells more.", file=sys.stderr)
    return 0
