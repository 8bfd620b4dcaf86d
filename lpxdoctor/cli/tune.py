"""lpxdoctor tune: start an engine again and again, one argument changed at a time, and keep what decodes faster."""

import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.cli._measuring import concurrencies, stop_flag
from lpxdoctor.errors import DoctorError, UsageError

if TYPE_CHECKING:
    from lpxdoctor.decode.profile import Rung
    from lpxdoctor.sizing.plan import Plan as Sizing
    from lpxdoctor.tune.service import Hints, Service
    from lpxdoctor.tune.state import State
    from lpxdoctor.tune.workflow import Wish

_LOOK_LIMIT_S = 30.0
_INTERRUPTED = 130
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST = 1_000_000


def _concurrencies(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(concurrencies(ctx, param, value) or ()))


def _words(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    try:
        found = tuple(tuple(shlex.split(value)) for value in values)
    except ValueError as error:
        raise click.BadParameter(f"{error}: write the arguments as on a command line.") from None
    if not all(words and words[0].startswith("-") for words in found):
        raise click.BadParameter('write arguments as on a command line, like --try="--max-num-seqs 64".')
    return found


@click.command("tune", epilog=_options.examples("lpxdoctor tune --engine vllm --concurrency 1,32 --budget 120"))
@click.option("--engine", required=True, metavar="COMMAND|NAME", help="What starts it, or a deployment.")
@click.option(
    *("--concurrency", "concurrencies"),
    callback=_concurrencies,
    default="1,32",
    metavar="N,N,...",
    show_default=True,
    help="Requests at once.",
)
@click.option(
    "--requests", metavar="N", type=click.IntRange(1, _MOST), help="Per concurrency.  [default: 15 seconds of them]"
)
@_options.lengths(_MOST)
@click.option(
    "--budget", metavar="MINUTES", type=click.FloatRange(1, 10080), default=60.0, show_default=True, help="In all."
)
@click.option(
    "--start-timeout",
    metavar="SECONDS",
    type=click.FloatRange(1, 86400),
    default=900.0,
    show_default=True,
    help="Longest time for one.",
)
@click.option(
    "--try", "given", multiple=True, callback=_words, metavar="ARGS", help="Try these first; may be repeated."
)
@click.option(
    "--only", multiple=True, metavar="STEP", help="Only these steps; may be repeated. A wrong one lists them."
)
@click.option("--speculate", multiple=True, metavar="ngram|DIR", help="Try this draft; may be repeated.")
@click.option("--unique-prompts", is_flag=True, help="My prompts share no beginnings: try without prefix cache.")
@click.option(
    "--prompts",
    "prompts_file",
    type=_options.FILE,
    metavar="FILE",
    help="Your regression set, one a line.",
)
@click.option("--resume", is_flag=True, help="Go on with the unfinished run for the same engine and numbers.")
@click.option("--keep", is_flag=True, help="Leave the deployment with what was chosen.")
@_options.api_key("The engine's API key")
@_options.output_format()
@click.option("-o", "--output", type=_options.FILE, metavar="FILE", help="Where to keep the profile.")
def command(
    engine: str,
    budget: float,
    start_timeout: float,
    resume: bool,
    keep: bool,
    form: str,
    output: Path | None,
    **options: Any,
) -> int:
    """Find the engine arguments that decode fastest without answering worse.

    --engine is a command with {port} and {arguments} in it, run on this machine, or the name of a deployment, which is
    put back as it was found. Every candidate is a start of its own.

    Exit status: 0 finished or out of budget, 2 the engine as found did not start or cannot be measured, 64 wrong use,
    130 interrupted. After a used-up budget and an interruption --resume goes on.
    """
    from lpxdoctor import policy  # noqa: PLC0415 - --help needs none of it
    from lpxdoctor.decode import store  # noqa: PLC0415
    from lpxdoctor.tune.workflow import Audience, tuned  # noqa: PLC0415

    wish = _wish(budget_s=budget * 60, keep=keep, **options)
    store.check(output)
    service = _service(engine, start_timeout, keep=keep)
    sizing = planned(service.hints, wish.input_len + wish.output_len)
    with stop_flag(*_STOPS, said="tune: stops: ends the engine that it started\n") as stopped:
        audience = Audience(is_stopped=lambda: bool(stopped), tell=_tell, on_rung=_tell_rung)
        state = tuned(service, wish, policy.load(), sizing, audience, resume=resume)
    if state is None:
        print("Interrupted: nothing was measured yet.", file=sys.stderr)
        return _INTERRUPTED
    _report(state, store.save(state.best, output), form)
    return 0 if state.ended else _INTERRUPTED


def _wish(*, only: tuple[str, ...], given: Sequence[tuple[str, ...]], prompts_file: Path | None, **rest: Any) -> "Wish":
    from lpxdoctor.tune import accuracy  # noqa: PLC0415
    from lpxdoctor.tune.candidates import checked_steps  # noqa: PLC0415
    from lpxdoctor.tune.service import Settings  # noqa: PLC0415
    from lpxdoctor.tune.workflow import Wish  # noqa: PLC0415

    return Wish(
        steps=checked_steps(only),
        given=tuple(Settings(words) for words in given),
        prompts=accuracy.read(prompts_file) if prompts_file else accuracy.bundled(),
        command=("lpxdoctor", *sys.argv[1:]),
        **rest,
    )


def _service(engine: str, limit_s: float, *, keep: bool) -> "Service":
    if " " in engine.strip():
        if keep:
            raise UsageError("--keep is for deployments: a command is yours to start, with the arguments told here.")
        from lpxdoctor.tune.command import command as of_command  # noqa: PLC0415

        return of_command(engine, limit_s)
    from lpxdoctor.tune.deployed import deployed  # noqa: PLC0415

    return deployed(engine, limit_s)


def planned(hints: "Hints", context: int) -> "Sizing | str":
    """Return the plan of the model on this machine's GPUs as if they were empty, or why there is none.

    A deployment that is tuned holds their memory, and is ended before each start.
    """
    from lpxdoctor.cli._host import ask  # noqa: PLC0415
    from lpxdoctor.facts.gpu import Gpus  # noqa: PLC0415
    from lpxdoctor.sizing.card import of_host  # noqa: PLC0415
    from lpxdoctor.sizing.options import wish  # noqa: PLC0415
    from lpxdoctor.sizing.plan import plan  # noqa: PLC0415
    from lpxdoctor.sizing.source import load  # noqa: PLC0415

    if hints.model is None or not Path(hints.model).exists():
        return "no model directory is known here, so nothing can be planned for it"
    parallel = hints.flags.get("--tensor-parallel-size", "1")
    count = int(parallel) if parallel.isdigit() else 1
    try:
        card = of_host(Gpus.parse(ask(Gpus.probes, container_test=False, limit_s=_LOOK_LIMIT_S)), count)
        card = replace(card, free_bytes=None, holders=())
        model = load(hints.model)
        wanted = wish(model, context=context, concurrency=None, precision=None, kv_format="auto", tensor_parallel=count)
        return plan(model, card, wanted)
    except DoctorError as error:
        return str(error).splitlines()[0].rstrip(".")


def _tell(line: str) -> None:
    print(f"tune: {line}", file=sys.stderr, flush=True)


def _tell_rung(rung: "Rung") -> None:
    rate = rung.output_tokens_per_s
    told = "no tokens/s" if rate is None else f"{rate:,.0f} tokens/s"
    invalid = "" if rung.valid else f", invalid: {rung.invalid_because or ''}"
    _tell(f"  {rung.concurrency} at once, {rung.requests:,} requests: {told}{invalid}")


def _report(state: "State", file: Path, form: str) -> None:
    from lpxdoctor.report import tune as report  # noqa: PLC0415

    if form == "json":
        print_document(report.to_json(state, str(file)))
        return
    from rich.console import Console  # noqa: PLC0415

    report.render(state, Console())
    print(f"Profile of the best: {file}")
