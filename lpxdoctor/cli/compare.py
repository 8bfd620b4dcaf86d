"""lpxdoctor compare: tell whether one baseline is slower than another, and what differs between the two."""

from typing import TYPE_CHECKING

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.errors import UsageError

if TYPE_CHECKING:
    from lpxdoctor.decode.compare import Comparison
    from lpxdoctor.decode.profile import Profile

STATUS = {"slower": 2, "faster": 0, "same": 0, "unjudged": 3}


@click.command("compare", epilog=_options.examples("lpxdoctor compare main last"))
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@_options.output_format()
def command(a: str, b: str, form: str) -> int:
    """Compare baseline B with baseline A, the older one.

    A and B are files, ids or their beginnings, names that `baseline --name` gave (the newest so named), or `last`.

    Exit status: 0 no slow-down, 2 slower, 3 cannot be judged, 64 wrong use or no such baseline.
    """
    from lpxdoctor.decode import store  # noqa: PLC0415 - --help needs none of it

    one, other = store.find(a), store.find(b)
    if (one.id, one.nonce) == (other.id, other.nonce):
        raise UsageError(
            f"{a} and {b} are one and the same run ({one.id} of {one.started}): there is nothing to compare.\n"
            "Measure again with lpxdoctor baseline, or type two of: lpxdoctor compare NAME last"
        )
    return show(compared(one, other), form)


def compared(a: "Profile", b: "Profile") -> "Comparison":
    """Compare two profiles by this site's policy."""
    from lpxdoctor import policy  # noqa: PLC0415
    from lpxdoctor.decode.compare import compare  # noqa: PLC0415

    return compare(a, b, policy.load().compare)


def show(comparison: "Comparison", form: str) -> int:
    """Print a comparison and return the exit status that it means."""
    if form == "json":
        from lpxdoctor.report.compare_json import to_json  # noqa: PLC0415 - each form is imported where it is asked for

        print_document(to_json(comparison))
    else:
        from rich.console import Console  # noqa: PLC0415

        from lpxdoctor.report import compare as report  # noqa: PLC0415

        report.render(comparison, Console())
    return STATUS[comparison.verdict.value]
