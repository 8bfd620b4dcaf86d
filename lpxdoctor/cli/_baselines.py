"""What baseline does with an inventory: every recorded deployment of its hosts in turn; one table, one status."""

from collections.abc import Callable, Sequence

import click

from lpxdoctor import deployments, fleet, inventory
from lpxdoctor.cli._edges import print_document
from lpxdoctor.decode import store
from lpxdoctor.decode.profile import Profile
from lpxdoctor.errors import DoctorError, worst
from lpxdoctor.report import baselines as report
from lpxdoctor.report.baselines import Row

INTERRUPTED = 130
_MISSING = 2


def measure_all(
    hosts: str,
    name: str | None,
    measured: Callable[[str], Profile | None],
    status_of: Callable[[Profile], int],
    form: str,
) -> int:
    """Measure one deployment after the other, print the table and return the worst status.

    Args:
        hosts: the value of -i.
        name: of the deployments, without @HOST; None: all that are recorded.
        measured: takes a deployment's name; None where it was stopped before anything was measured.
        status_of: what a baseline of that profile alone would end with.
        form: text or json.
    """
    names = [host.name for host in fleet.hosts(inventory.parse(hosts))]
    rows: list[Row] = []
    for host, found in _recorded(names, name):
        if found is None:
            what = f"a deployment named {name}" if name else "a deployment"
            rows.append(Row(host=host, deployment=None, status=_MISSING, why=f"{what} is not recorded here"))
            continue
        row = _row(host, found, measured, status_of)
        rows.append(row)
        if row.status == INTERRUPTED:
            break
    if form == "json":
        print_document(report.json(rows))
    else:
        print(report.text(rows))
    return worst(row.status for row in rows)


def _recorded(hosts: Sequence[str], name: str | None) -> list[tuple[str, str | None]]:
    """Return each host with its deployments, in the inventory's order; None for a host that has none."""
    records = [deployments.load(one) for one in deployments.names()]
    found: list[tuple[str, str | None]] = []
    for host in hosts:
        own = [one.name for one in records if one.host == host and name in (None, one.name, one.name.partition("@")[0])]
        found += [(host, one) for one in own] or [(host, None)]
    return found


def _row(host: str, name: str, measured: Callable[[str], Profile | None], status_of: Callable[[Profile], int]) -> Row:
    click.echo(f"{name}: measuring", err=True)
    try:
        profile = measured(name)
    except DoctorError as error:
        return Row(host=host, deployment=name, status=error.exit_code, why=str(error))
    if profile is None:
        return Row(host=host, deployment=name, status=INTERRUPTED, why="interrupted before anything was measured")
    file = store.save(profile, None)
    return Row(host=host, deployment=name, profile=profile, file=str(file), status=status_of(profile))
