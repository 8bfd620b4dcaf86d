"""lpxdoctor provision: an inventory and limits in; hosts put right batch by batch, and where each of them is, out."""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from lpxdoctor import fleet, inventory, policy
from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._rollout import progress
from lpxdoctor.deploy.request import checked_name
from lpxdoctor.files import is_there
from lpxdoctor.fix import variables
from lpxdoctor.provision import record as records
from lpxdoctor.provision import steps
from lpxdoctor.provision.batches import parse
from lpxdoctor.provision.record import SITE, Host, Phase, Record, Wishes
from lpxdoctor.provision.run import Result, Step, resumed, run
from lpxdoctor.provision.steps import Job
from lpxdoctor.report import provision as report
from lpxdoctor.report.encoding import pretty
from lpxdoctor.report.signs import shown

WORDS = ("boot", "driver", "container")  # in the order of site.yml
_FAILED, _INTERRUPTED = 2, 130
_SERIAL_HELP = "Hosts at once after the canary: 5, 10% or 1,10%,50%.  [default: 10%]"


@click.command("provision", epilog=_options.examples("lpxdoctor provision -i inventory.yml --serial 10% --reboot"))
@click.argument("playbooks", nargs=-1, metavar="[WORD]...", type=click.Choice(WORDS))
@_options.inventory(required=True)
@click.option("--serial", default="10%", metavar="SIZES", help=_SERIAL_HELP)
@click.option(
    "--max-fail",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Failed hosts at which it stops.",
)
@_options.variables("; with engine_model an engine too")
@click.option("--name", metavar="NAME", default="vllm", show_default=True, help="Name of the engine.")
@click.option("--variant", metavar="NAME", help="Instead of the first pinned engine that runs on the host.")
@click.option("--reboot", is_flag=True, help="Reboot where something counts from the next boot on only.")
@click.option("--plan", is_flag=True, help="Change nothing; show the batches.")
@click.option("--resume", is_flag=True, help="Go on with the last run on this inventory; what is typed besides is new.")
@_options.container_test()
@_options.policy()
@_options.output_format()
@click.pass_context
def command(context: click.Context, /, *, hosts: str, plan: bool, resume: bool, form: str, **options: Any) -> int:
    """Bring servers to a state in which they serve: the first one alone, then batch by batch.

    Each host passes the playbooks WORD... (all of site.yml where none is named), the check, and where the variables
    describe an engine its roll-out and a short baseline, which is compared with the canary's. It stops when --max-fail
    hosts failed, and --resume goes on.

    Exit status: 0 every host is done, 2 one is not, 64 wrong use, 130 interrupted.
    """
    source = _resolved(hosts)
    with nullcontext() if plan else records.locked(source):
        former = records.load(source) if resume else None
        typed = {
            name: value
            for name, value in _wished(options).items()
            if former is None or context.get_parameter_source(_TYPED.get(name, name)) is ParameterSource.COMMANDLINE
        }
        wishes = msgspec.structs.replace(former.wishes, **typed) if former else Wishes(source=source, **typed)
        result = _run(former, wishes, form if plan else None)
    if result is None:
        return 0
    if form == "json":
        print_document(report.json(result))
    else:
        _print(report.text(result))
    if result.interrupted:
        return _INTERRUPTED
    return _FAILED if result.stopped else 0


# Wish -> its option where that has another name.
_TYPED = {"container_test": "no_container_test", "variables": "variables_file", "policy": "policy_file"}


def _wished(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "playbooks": tuple(word for word in WORDS if word in options["playbooks"]) or SITE,
        "serial": parse(options["serial"]),
        "max_fail": options["max_fail"],
        "name": checked_name(options["name"]),
        "variant": options["variant"],
        "reboot": options["reboot"],
        "container_test": not options["no_container_test"],
        "variables": _resolved(options["variables_file"] or ""),
        "policy": _resolved(options["policy_file"] or ""),
    }


def _run(former: Record | None, wishes: Wishes, planned: str | None) -> Result | None:
    """Run, or only print the plan in the form that is given."""
    source = inventory.parse(wishes.source)
    found = fleet.hosts(source)
    names = [host.name for host in found]
    record = resumed(msgspec.structs.replace(former, wishes=wishes), names) if former else _new(wishes, names)
    given = variables.read(wishes.variables)
    site = policy.load(Path(wishes.policy) if wishes.policy else None)
    with progress("provision") as on_event:
        job = Job(
            source=source,
            hosts=found,
            variables=given,
            playbooks=wishes.playbooks,
            name=wishes.name,
            variant=wishes.variant,
            reboot=wishes.reboot,
            container_test=wishes.container_test,
            policy=site,
            on_event=on_event,
        )
        todo: Mapping[Phase, Step] = steps.of(job)
        if planned is None:
            return run(record, todo, records.save)
    ahead = report.plan(record, tuple(todo))
    if planned == "json":
        print_document(pretty(ahead))
    else:
        _print(report.plan_text(ahead))
    return None


def _print(text: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - only text needs it

    print(shown(text, Console(), report.PLAIN))


def _new(wishes: Wishes, names: list[str]) -> Record:
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Record(wishes=wishes, started=started, hosts=dict.fromkeys(names, Host()))


def _resolved(typed: str) -> str:
    """Return a file's name so that it holds from another directory too; what is no file stays as it is."""
    return str(Path(typed).resolve()) if typed and is_there(typed) else typed
