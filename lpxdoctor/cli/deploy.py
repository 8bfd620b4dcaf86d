"""lpxdoctor deploy: options in; an engine on each host, and where it is with its key, out."""

import os
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.errors import UsageError

# Option -> variable of the role.
VARIABLES = {
    "model": "engine_model",
    "served_name": "engine_served_name",
    "port": "engine_port",
    "bind": "engine_bind",
    "network": "engine_network",
    "max_model_len": "engine_max_model_len",
    "max_num_seqs": "engine_max_num_seqs",
    "gpu_memory_utilization": "engine_gpu_memory_utilization",
    "timeout": "engine_ready_limit_s",
}


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return value and str(IPv4Address(value))
    except ValueError:
        raise click.BadParameter(f"{value} is no IPv4 address of the host.", context, parameter) from None


@click.command(
    "deploy",
    epilog=_options.examples(
        "sudo lpxdoctor deploy --local --model /srv/models/qwen7b",
        "lpxdoctor deploy -i root@gpu-1 --model /srv/models/qwen7b --plan",
    ),
)
@click.option("--local", is_flag=True, help="This machine.")
@_options.inventory()
@click.option(
    "--name", metavar="NAME", default="vllm", show_default=True, help="Name of the deployment and its container."
)
@click.option("--model", metavar="DIR", help="Directory of the model on the host.")
@click.option("--served-name", metavar="NAME", help="The model's name in requests.  [default: the directory's]")
@click.option(
    "--variant", metavar="NAME", help="A pinned engine of images/vllm.toml.  [default: the first that the host can run]"
)
@click.option(
    "--image", metavar="IMAGE", help="Another image: repository@sha256:digest, or what is on the host already."
)
@click.option("--port", metavar="PORT", type=click.IntRange(1, 65535), help="Port on the host.  [default: 8000]")
@click.option("--bind", metavar="ADDRESS", callback=_address, help="Address on the host.  [default: 127.0.0.1]")
@click.option("--network", type=click.Choice(["bridge", "host"]), help="The container's network.  [default: bridge]")
@click.option("--max-model-len", metavar="N", type=click.IntRange(min=1), help="Longest sequence, in tokens.")
@click.option("--max-num-seqs", metavar="N", type=click.IntRange(min=1), help="Most requests decoded at once.")
@click.option(
    "--gpu-memory-utilization", metavar="SHARE", type=click.FloatRange(0, 1, min_open=True), help="Share of GPU memory."
)
@click.option(
    "--arg", "arguments", metavar="ARG", multiple=True, help="One more argument of the engine; may be repeated."
)
@click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="Environment; without a value it is yours, kept secret."
)
@click.option("--volume", "volumes", multiple=True, metavar="HOST:DIR[:ro]", help="A further mount; may be repeated.")
@_options.variables("; what the options say goes before them")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    help="Longest time for the engine to start.  [default: 1200]",
)
@click.option("--plan", is_flag=True, help="Change nothing; show what would change.")
@_options.output_format()
def command(
    *,
    local: bool,
    hosts: str | None,
    name: str,
    variant: str | None,
    image: str | None,
    arguments: tuple[str, ...],
    env: tuple[str, ...],
    volumes: tuple[str, ...],
    variables_file: str | None,
    plan: bool,
    form: str,
    **options: Any,
) -> int:
    """Roll out the pinned vLLM container and wait until it is healthy.

    An engine that runs already is replaced only by one that became healthy; what fails is taken away again.

    Exit status: 0 it is healthy on every host, 2 on one it is not, 3 this machine lacks what that takes, 64 wrong use,
    130 interrupted.
    """
    from lpxdoctor.cli._rollout import progress, source_of  # noqa: PLC0415
    from lpxdoctor.deploy.request import Request, checked_name, read_variables  # noqa: PLC0415

    source = source_of(local=local, hosts=hosts)
    if source is None:
        raise UsageError("Where to?\nGive --local for this machine, or -i with hosts: -i root@10.0.0.5")
    given = read_variables(Path(variables_file)) if variables_file else {}
    given |= {VARIABLES[option]: value for option, value in options.items() if value is not None}
    if "engine_model" not in given:
        raise UsageError("Which model?\nGive the directory it is in on the host: --model /srv/models/NAME")
    given = extended(given, arguments, env, volumes)
    request = Request(name=checked_name(name), variables=given, variant=variant, image=image)

    from lpxdoctor.deploy.rollout import deploy  # noqa: PLC0415
    from lpxdoctor.report import deploy as report  # noqa: PLC0415

    with progress(name) as on_event:
        results = deploy(request, source, on_event, plan=plan)
    if form == "json":
        print_document(report.to_json(results, plan=plan))
    else:
        print(report.text(results, plan=plan))
    return 0


def extended(
    given: Mapping[str, Any], arguments: Sequence[str], env: Sequence[str], volumes: Sequence[str]
) -> dict[str, Any]:
    """Add what may be repeated to what the file says."""
    told = dict(entry.split("=", 1) for entry in env if "=" in entry)
    secret = {name: _own(name) for name in env if "=" not in name}
    return {
        **given,
        "engine_arguments": [*given.get("engine_arguments", []), *arguments],
        "engine_env": {**given.get("engine_env", {}), **told},
        "engine_secret_env": {**given.get("engine_secret_env", {}), **secret},
        "engine_volumes": [*given.get("engine_volumes", []), *volumes],
    }


def _own(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise UsageError(f"--env {name}: there is no {name} in this environment.\nExport it, or write {name}=VALUE.")
    return value
