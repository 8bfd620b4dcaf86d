"""lpxdoctor baseline: measure a running engine, show the numbers and keep them."""

import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from lpxdoctor import policy
from lpxdoctor.cli import _options
from lpxdoctor.cli._measuring import MOST_AT_ONCE, concurrencies, numbers, stop_flag
from lpxdoctor.decode import store
from lpxdoctor.decode.gpu import sampled
from lpxdoctor.decode.hooks import Hooks, Progress
from lpxdoctor.decode.ladder import doubling
from lpxdoctor.decode.measure import LEAST_REQUESTS, Plan, measure, most_at_once
from lpxdoctor.decode.profile import Profile, Rung, encode
from lpxdoctor.decode.slo import targets
from lpxdoctor.decode.target import reached
from lpxdoctor.decode.verdict import concluded

ENDPOINTS = ("completions", "chat")
_USUAL = (1, 8, 32)
_LEAST_FOR_SLO = 60
_MISSED, _INTERRUPTED = 2, 130
_MOST = 1_000_000
_LONGEST_NAME = 80


def _ladder(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if not value:
        return None if value is None else doubling(min(MOST_AT_ONCE, most_at_once()))
    found = numbers(value)
    if found is None or list(found) != sorted(set(found)):
        raise click.BadParameter(
            f"{value!r} is not a list of rising numbers from 1 to {MOST_AT_ONCE}, like 1,2,4,8. "
            "Without numbers, which is 1,2,4,... until it ends by itself, --ladder stands last."
        )
    return found


def _name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (value and value.isprintable() and value != "last" and len(value) <= _LONGEST_NAME):
        raise click.BadParameter(f"{value!r} is no name: write up to {_LONGEST_NAME} printable letters, not `last`.")
    return value


def _timeout(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isnan(value):  # which no range excludes
        raise click.BadParameter("nan is no time.")
    return value


@click.command(
    "baseline",
    epilog=_options.examples(
        "lpxdoctor baseline vllm --ladder --slo tpot=20ms", "lpxdoctor baseline http://127.0.0.1:8000"
    ),
)
@click.argument("target", required=False)
@_options.inventory("Every deployment recorded there, in turn.")
@click.option("--model", metavar="NAME", help="Which of the served models.  [default: the only one]")
@click.option(
    "--concurrency",
    callback=concurrencies,
    metavar="N,N,...",
    help="Requests at once, exactly these.  [default: 1,8,32]",
)
@click.option(
    "--ladder",
    is_flag=False,
    flag_value="",
    callback=_ladder,
    metavar="[N,N,...]",
    help="Climb (powers of two without numbers), end where it tells nothing more, name the knee and its cause.",
)
@click.option("--slo", metavar="TARGETS", help="Find the most at once whose p95 holds, as tpot=20ms,ttft=500ms.")
@click.option(
    "--repeats",
    metavar="N",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Measure all of --concurrency so often.",
)
@click.option(
    "--requests",
    metavar="N",
    type=click.IntRange(1, _MOST),
    help="Per concurrency, one per slot at least.  [default: 4 per slot, 16 at least, 60 with --slo; 5 s on a ladder]",
)
@_options.lengths(_MOST)
@click.option("--model-config", metavar="DIR", help="The model's directory here, for the ceiling of each line.")
@click.option("--from", "source", metavar="PROFILE", help="Show a kept profile again: a file, an id, or last.")
@_options.output_format(("text", "json", "html"))
@click.option("--name", "keep_as", metavar="NAME", callback=_name, help="Keep the profile under this name too.")
@click.option("--against", "earlier", metavar="NAME", help="Compare with a baseline: a file, an id, a name, last.")
@click.option("--evidence", metavar="FILE", help="What `collect` saw of the engine's host: the profile keeps its id.")
@click.option("-o", "--output", type=_options.FILE, metavar="FILE", help="Where to keep the profile.")
@_options.api_key("The server's API key")
@click.option(
    "--endpoint",
    type=click.Choice(ENDPOINTS),
    help="What is measured.  [default: completions where the server has them, which take token ids]",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 86400),
    callback=_timeout,
    default=120.0,
    show_default=True,
    help="Longest silence.",
)
def command(
    *,
    target: str | None,
    hosts: str | None,
    slo: str | None,
    source: str | None,
    form: str,
    output: Path | None,
    keep_as: str | None,
    earlier: str | None,
    evidence: str | None,
    **options: Any,
) -> int:
    """Measure TTFT, TPOT and tokens/s of TARGET: a URL, or the name of a deployment.

    With -i it is one table, and the exit status is the worst; a host without a deployment counts as 2.

    Exit status: 0 measured, 1 measured but a line cannot be compared or too few requests prove --slo (it says why),
    2 nothing could be measured or no line holds --slo, 64 wrong use, 130 interrupted (what was measured is kept).
    With --against also: 2 slower, 3 cannot be judged (see lpxdoctor compare).
    """
    measures = bool(target or output or options["concurrency"] or options["ladder"])
    _refuse(target, hosts, source, form, measures=measures)
    if hosts and (output or earlier):
        raise click.UsageError("-i keeps a profile of each and compares none: it has neither -o nor --against.")
    limits, targets_ms = policy.load().ladder, targets(slo) if slo is not None else {}
    if source is not None:
        return _report(concluded(store.find(source), limits, targets_ms), None, form)
    plan = _plan(limits, slo=slo, **options)
    store.check(output)
    reference = store.find(earlier) if earlier else None  # now rather than after the measurement
    host = _evidence_id(evidence) if evidence else None

    def measured(name: str) -> Profile | None:
        found = _measured(name, plan, model=options["model"], key_file=options["key_file"])
        return found and msgspec.structs.replace(concluded(found, limits, targets_ms), name=keep_as, evidence=host)

    if hosts is not None:
        from lpxdoctor.cli import _baselines  # noqa: PLC0415 - one deployment needs none of it

        return _baselines.measure_all(hosts, target, measured, _status, form)
    assert target is not None
    return _kept(measured(target), output, reference, form)


def _evidence_id(path: str) -> str:
    from lpxdoctor.cli._against import evidence_id  # noqa: PLC0415 - most runs name none

    return evidence_id(path)


def _plan(
    limits: policy.Ladder,
    *,
    concurrency: tuple[int, ...] | None,
    ladder: tuple[int, ...] | None,
    repeats: int,
    requests: int | None,
    slo: str | None,
    timeout: float,
    **rest: Any,
) -> Plan:
    """Return what to measure; rest are options that mean the same there."""
    if concurrency and ladder:
        raise click.UsageError("--concurrency measures exactly its numbers, --ladder climbs: type one of them.")
    if ladder and repeats > 1:
        raise click.UsageError("--repeats is for --concurrency: a ladder climbs once.")
    return Plan(
        concurrencies=ladder or (concurrency or _USUAL) * repeats,
        stops=limits if ladder else None,
        requests=requests,
        least_requests=_LEAST_FOR_SLO if slo else LEAST_REQUESTS,
        timeout_s=timeout,
        command=("lpxdoctor", *sys.argv[1:]),
        **{name: rest[name] for name in ("input_len", "output_len", "model_config", "endpoint")},
    )


def _measured(name: str, plan: Plan, *, model: str | None, key_file: Path | None) -> Profile | None:
    """Measure one target, with a line of progress; None where it was interrupted before anything was measured."""
    with (
        stop_flag(signal.SIGINT) as stopped,
        reached(name, model=model, key_file=key_file) as there,
        sampled(local=there.is_local) as sampler,
    ):
        hooks = Hooks(progress=_show_progress, is_stopped=lambda: bool(stopped))
        return measure(there, plan, sampler, hooks, _clear_progress)


def _kept(profile: Profile | None, output: Path | None, reference: Profile | None, form: str) -> int:
    """Keep a profile and report it, compare it where there is what with, and return the exit status."""
    if profile is None:
        print("Interrupted: nothing was measured yet.", file=sys.stderr)
        return _INTERRUPTED
    file = store.save(profile, output)
    if reference is None:
        return _report(profile, file, form)
    own = _status(profile) if form == "json" else _report(profile, file, form)
    from lpxdoctor.cli._against import against  # noqa: PLC0415 - most runs compare nothing

    other = against(reference, profile, form)
    return own if own in (_MISSED, _INTERRUPTED) or not other else other


def _refuse(target: str | None, hosts: str | None, source: str | None, form: str, *, measures: bool) -> None:
    """Raise UsageError where what was typed does not go together."""
    if hosts and (source or form == "html"):
        raise click.UsageError("-i measures many: it has no --from and no HTML.")
    if source and measures:
        raise click.UsageError("--from shows what was measured before: it takes only --slo and --format.")
    if not (target or hosts or source):
        raise click.UsageError("Name a TARGET: a URL like http://127.0.0.1:8000, or a deployment.")


def _report(profile: Profile, file: Path | None, form: str) -> int:
    """Show the profile and return the exit status; file is where it was kept just now."""
    if form == "json":
        click.echo(encode(profile).encode(), nl=False)  # JSON is UTF-8 whatever the terminal is
    elif form == "html":
        from lpxdoctor.report.decode_html import page  # noqa: PLC0415

        click.echo(page(profile).encode(), nl=False)
    else:
        from rich.console import Console  # noqa: PLC0415 - only text needs it, and only now

        from lpxdoctor.report import decode  # noqa: PLC0415

        decode.render(profile, Console())
        if file:
            print(f"Saved as baseline {profile.id}: {file}")
    return _status(profile)


def _status(profile: Profile) -> int:
    if profile.interrupted:
        return _INTERRUPTED
    if profile.slo and profile.slo.concurrency is None:
        return _MISSED
    return 0 if profile.is_valid and (profile.slo is None or profile.slo.confident) else 1


def _show_progress(progress: Progress) -> None:
    if not sys.stderr.isatty():
        return
    failed = f", {progress.failed} failed" if progress.failed else ""
    line = f"{progress.concurrency} at once: {progress.answered} of {progress.asked} answered{failed}"
    os.write(sys.stderr.fileno(), f"\r\x1b[K{line}".encode())  # one write, unbuffered: it happens between two polls


def _clear_progress(_rung: Rung) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\r\x1b[K")
