"""What commands that run playbooks share: where the hosts come from, and a live line for each of them."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lpxdoctor import fleet, inventory
from lpxdoctor.errors import UsageError
from lpxdoctor.inventory import Source

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lpxdoctor.playbook import TaskEvent


def source_of(*, local: bool, hosts: str | None) -> Source | None:
    """Return the inventory that --local or -i mean, None where neither is given.

    Raises:
        UsageError: both are given, or -i means no inventory that names hosts.
    """
    if local and hosts:
        raise UsageError("--local and -i exclude each other: the first is this machine, the second others.")
    if local:
        return inventory.local()
    if not hosts:
        return None
    source = inventory.parse(hosts)
    fleet.hosts(source)  # Ansible's own run would read another file's mistakes into a longer tale
    return source


@contextmanager
def progress(what: str, begins: str = "starts Ansible") -> Generator[Callable[["TaskEvent"], None]]:
    """Yield what takes events; on a terminal each host has a line with its task and the time, else nothing is shown.

    begins is what is done before the first event comes.
    """
    if not sys.stderr.isatty():
        yield lambda event: None  # noqa: ARG005
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[host]}", table_column=Column(no_wrap=True)),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as display:
        first = display.add_task(begins, host=what, total=None)
        lines: dict[str, TaskID] = {}

        def show(event: "TaskEvent") -> None:
            if event.host and event.host not in lines:
                lines[event.host] = display.add_task("", host=event.host, total=None)
                display.update(first, visible=False)
            for host, line in lines.items():
                if event.host in {"", host}:  # a task starts on all hosts, and ends on one
                    mark = "" if event.state.value == "started" else f" ({event.state.value})"
                    display.update(line, description=f"{event.task}{mark}")

        yield show
