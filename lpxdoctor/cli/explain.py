"""lpxdoctor explain: print what a check looks for, why it matters, how to fix it, and where that is known from."""

import difflib
import textwrap

import click

from lpxdoctor import bundled, catalog
from lpxdoctor.errors import UsageError


@click.command("explain")
@click.argument("id_", metavar="ID")
def command(id_: str) -> int:
    """Show why a check matters, how to fix what it finds, and its source.

    Exit status: 0 told, 64 no check has the id.
    """
    checks = {check.id: check for check in catalog.load()}
    check = checks.get(id_)
    if check is None:
        near = difflib.get_close_matches(id_, checks, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Type: lpxdoctor checks"
        raise UsageError(f"no check has the id {id_}. {hint}")
    waits = [other.id for other in checks.values() if id_ in other.after]
    print(f"{check.title}.\n\n{check.id}, {check.severity.value}, layer {check.layer}\n")
    for label, text in (("Why", check.why), ("Fix", check.cure), ("Source", check.source)):
        print(f"{label}:\n{textwrap.indent(text, '  ')}\n")
    if check.fix and (bundled.PLAYBOOKS / f"{check.fix}.yml").exists():
        print(f"The playbook that puts it right: {check.fix}. Type: lpxdoctor fix {check.id}")
    if check.after:
        print(f"Not judged while one of these fails: {', '.join(check.after)}")
    if waits:
        print(f"Not judged while this one fails: {', '.join(waits)}")
    return 0
