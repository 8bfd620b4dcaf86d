"""lpxdoctor baseline: measure a running engine, show the numbers and keep them."""

import math
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from lpxdoctor.decode import store
from lpxdoctor.decode.gpu import sampled
from lpxdoctor.decode.hooks import Hooks, Progress
from lpxdoctor.decode.measure import Plan, measure
from lpxdoctor.decode.profile import Profile, Rung, encode
from lpxdoctor.decode.target import KEY_VARIABLE, reached

FORMATS = ("text", "json")
_INTERRUPTED = 130
_MOST_AT_ONCE = 4096
_MOST = 1_000_000


def _concurrencies(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= _MOST_AT_ONCE for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of numbers from 1 to {_MOST_AT_ONCE}, like 1,8,32.")
    return tuple(int(part) for part in parts)


def _timeout(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which no range excludes
        raise click.BadParameter("nan is no time.")
    return value


@click.command("baseline")
@click.argument("target")
@click.option("--model", metavar="NAME", help="Which of the served models.  [default: the only one]")
@click.option(
    "--concurrency",
    callback=_concurrencies,
    default="1,8,32",
    metavar="N,N,...",
    show_default=True,
    help="Requests at once.",
)
@click.option(
    "--requests",
    type=click.IntRange(1, _MOST),
    help="Per concurrency, one per slot at least.  [default: 4 per slot, 16 at least]",
)
@click.option(
    "--input-len", type=click.IntRange(1, _MOST), default=128, show_default=True, help="Tokens of each prompt."
)
@click.option(
    "--output-len", type=click.IntRange(2, _MOST), default=128, show_default=True, help="Tokens of each answer."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to keep the profile.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The server's API key; or set {KEY_VARIABLE}.  [default: the deployment's own]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 86400),
    callback=_timeout,
    default=120.0,
    show_default=True,
    help="Longest silence, in seconds.",
)
def command(
    target: str,
    model: str | None,
    concurrency: tuple[int, ...],
    requests: int | None,
    input_len: int,
    output_len: int,
    form: str,
    output: Path | None,
    api_key_file: Path | None,
    timeout: float,
) -> int:
    """Measure TTFT, TPOT and tokens/s of TARGET: a URL, or the name of a deployment.

    Exit status: 0 measured, 1 measured but a line cannot be compared (it says why), 2 nothing could be measured,
    64 wrong use, 130 interrupted (what was measured is kept).
    """
    store.check(output)
    plan = Plan(
        concurrencies=concurrency,
        requests=requests,
        input_len=input_len,
        output_len=output_len,
        timeout_s=timeout,
        command=("lpxdoctor", *sys.argv[1:]),
    )
    with (
        _stop_flag() as stopped,
        reached(target, model=model, key_file=api_key_file) as there,
        sampled(local=there.is_local) as sampler,
    ):
        hooks = Hooks(progress=_show_progress, is_stopped=lambda: bool(stopped))
        profile = measure(there, plan, sampler, hooks, _clear_progress)
    if profile is None:
        print("Interrupted: nothing was measured yet.", file=sys.stderr)
        return _INTERRUPTED
    file = store.save(profile, output)
    _report(profile, file, form)
    return _INTERRUPTED if profile.interrupted else 0 if profile.is_valid else 1


def _report(profile: Profile, file: Path, form: str) -> None:
    if form == "json":
        click.echo(encode(profile).encode(), nl=False)  # JSON is UTF-8 whatever the terminal is
        return
    from rich.console import Console  # noqa: PLC0415 - only text needs it, and only now

    from lpxdoctor.report import decode  # noqa: PLC0415

    decode.render(profile, Console())
    print(f"Saved as baseline {profile.id}: {file}")


@contextmanager
def _stop_flag() -> Generator[list[int]]:
    """Yield what the first Ctrl-C fills, so that the run ends with what it has; the second one ends the program."""
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _show_progress(progress: Progress) -> None:
    if not sys.stderr.isatty():
        return
    failed = f", {progress.failed} failed" if progress.failed else ""
    line = f"{progress.concurrency} at once: {progress.answered} of {progress.asked} answered{failed}"
    os.write(sys.stderr.fileno(), f"\r\x1b[K{line}".encode())  # one write, unbuffered: it happens between two polls


def _clear_progress(_rung: Rung) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\r\x1b[K")
