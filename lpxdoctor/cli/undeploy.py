"""lpxdoctor undeploy: the name of a deployment in; its container, key and record gone."""

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document


@click.command("undeploy", epilog=_options.examples("lpxdoctor undeploy vllm"))
@click.argument("name")
@click.option("--local", is_flag=True, help="This machine, whether or not it is recorded there.")
@_options.inventory("Whether or not it is recorded there.")
@_options.output_format()
def command(*, name: str, local: bool, hosts: str | None, form: str) -> int:
    """Remove a deployed engine with its key; model and image stay.

    Exit status: 0 it is gone, or was not there, 2 a host does not answer or keeps it, 3 this machine lacks what that
    takes, 64 wrong use or no such deployment, 130 interrupted.
    """
    from lpxdoctor.cli._rollout import progress, source_of  # noqa: PLC0415
    from lpxdoctor.deploy.request import checked_name  # noqa: PLC0415
    from lpxdoctor.deploy.rollout import recorded, undeploy  # noqa: PLC0415
    from lpxdoctor.report import deploy as report  # noqa: PLC0415

    engine = checked_name(name.partition("@")[0])
    source = source_of(local=local, hosts=hosts) or recorded(name)
    with progress(name) as on_event:
        changed = undeploy(engine, source, on_event)
    if form == "json":
        print_document(report.gone_json(engine, changed))
    else:
        print(report.gone_text(engine, changed))
    return 0
