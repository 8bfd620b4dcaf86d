"""lpxdoctor plan: whether a model fits a GPU, with what engine arguments, and how fast it can be at most."""

from typing import TYPE_CHECKING

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.sizing.cache import FORMATS

if TYPE_CHECKING:
    from lpxdoctor.sizing.card import Card

PRECISIONS = ("bf16", "fp16", "fp8", "int8", "nvfp4", "int4", "mxfp4")
LIMIT_S = 30.0
_REFUSED = 2


@click.command("plan", epilog=_options.examples('lpxdoctor plan /srv/models/qwen7b --gpu "NVIDIA L4" --context 8192'))
@click.argument("model", metavar="MODEL")
@click.option("--gpu", "name", metavar="NAME", help='A GPU of the table, as "NVIDIA L4", instead of this host\'s.')
@click.option("--from", "source", metavar="FILE", help=f"The GPUs in {_options.EVIDENCE}.")
@click.option(
    "--context", metavar="N", type=click.IntRange(1, 1 << 31), help="Tokens of a request, in and out.  [default: 8192]"
)
@click.option("--concurrency", metavar="N", type=click.IntRange(1, 65536), help="Requests at once that must fit.")
@click.option("--precision", type=click.Choice(PRECISIONS), help="Of the weights.  [default: as the checkpoint is]")
@click.option(
    "--kv-cache-dtype",
    "kv_format",
    metavar="DTYPE",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="Of the KV cache, as vLLM names it; a wrong one lists all.",
)
@click.option(
    "--tensor-parallel",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="GPUs that share the model.",
)
@_options.output_format()
def command(
    model: str,
    name: str | None,
    source: str | None,
    context: int | None,
    concurrency: int | None,
    precision: str | None,
    kv_format: str,
    tensor_parallel: int,
    form: str,
) -> int:
    """Plan a model's memory before it is loaded.

    MODEL is a directory, a config.json, or a hub id (OWNER/NAME). Only the config and the headers of the weights are
    read.

    Exit status: 0 it fits, 2 it cannot fit, 3 the GPU or the hub cannot be read, 64 wrong use or no such model.
    """
    from lpxdoctor.sizing.options import wish  # noqa: PLC0415 - --help needs none of it
    from lpxdoctor.sizing.plan import plan  # noqa: PLC0415
    from lpxdoctor.sizing.source import load  # noqa: PLC0415

    if name and source:
        raise click.UsageError("--gpu and --from both say which GPU: type one of them.")
    found = load(model)
    wanted = wish(
        found,
        context=context,
        concurrency=concurrency,
        precision=precision,
        kv_format=kv_format,
        tensor_parallel=tensor_parallel,
    )
    made = plan(found, _card(name, source, tensor_parallel), wanted)
    if form == "json":
        from lpxdoctor.report.plan_json import to_json  # noqa: PLC0415 - each form is imported where it is asked for

        print_document(to_json(made))
    else:
        from rich.console import Console  # noqa: PLC0415

        from lpxdoctor.report import plan as report  # noqa: PLC0415

        report.render(made, Console())
    return 0 if made.fits else _REFUSED


def _card(name: str | None, source: str | None, count: int) -> "Card":
    from lpxdoctor.cli._host import ask, read_evidence  # noqa: PLC0415
    from lpxdoctor.facts.gpu import Gpus  # noqa: PLC0415
    from lpxdoctor.sizing.card import by_name, of_host  # noqa: PLC0415

    if name:
        return by_name(name)
    evidence = read_evidence(source) if source else ask(Gpus.probes, container_test=False, limit_s=LIMIT_S)
    return of_host(Gpus.parse(evidence), count)
