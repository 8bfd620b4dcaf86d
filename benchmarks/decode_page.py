"""Every run and what came of each goal in, the results page out: how it was made, the runs, the goals."""

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from decode_goals import Found, Row
from peers import INPUT_LEN, OUTPUT_LEN
from truth import GAP_MS, TTFT_MS

_MET = {True: "met", False: "**missed**", None: "not judged"}


def page(rows: Sequence[Row], found: Sequence[Found]) -> str:
    """Return the page as Markdown."""
    from lpxdoctor import __version__  # noqa: PLC0415 - the path to it is set by then

    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs ({platform.machine()})"
    today = datetime.now(timezone.utc).date().isoformat()
    loads = [row["load"] for row in rows]
    lines = [
        "# What a client says of a server whose times are known",
        "",
        f"`{typed()}`",
        f"on {today}, lpxdoctor {__version__}, {machine}.",
        "",
        f"Load average {min(loads):.0f} to {max(loads):.0f}, the benchmark's own included.",
        f"The server waits {TTFT_MS} ms and then sends a chunk every {GAP_MS} ms (spread: each answer by its own",
        "clock; sync: all at the ticks of one; fast: without waiting; x4: four tokens a chunk);",
        f"{INPUT_LEN} tokens in, {OUTPUT_LEN} out. In brackets is what it really did in that run.",
        "CPU, memory (PSS, at its most) and time to the first request are the whole command's, with all its processes.",
        "",
        *_table(rows),
        "",
        "| goal | | here |",
        "| --- | --- | --- |",
        *(f"| {one.goal} | {_MET[one.met]} | {one.figures} |" for one in found),
    ]
    because = [row for row in rows if row.get("failures") or not row.get("valid", True)]
    if because:
        lines += ["", "What the client itself said of its rungs that were flagged:", ""]
        lines += [f"- {row['mode']}, {row['concurrency']} at once: {row['invalid_because']}" for row in because]
    return "\n".join(lines)


def typed() -> str:
    """Return the command line as it was typed, as far as a process can tell: shells write `~` out."""
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    python, *arguments = sys.orig_argv
    words = [Path(python).name if Path(python).is_absolute() else python, *arguments]
    home = f"{Path.home()}/"
    shown = [f"~/{shlex.quote(word[len(home) :])}" if word.startswith(home) else shlex.quote(word) for word in words]
    return " ".join([*(("nice", "-n", str(priority)) if priority else ()), *shown])


def _table(rows: Sequence[Row]) -> list[str]:
    names = ["client", "mode", "at once", "TTFT p50 ms", "p99 ms", "ITL p99 ms", "of ideal load"]
    names += ["us CPU/event", "peak MB", "first request s", "wall s", "flagged"]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        pairs = [_pair(row, name) for name in ("ttft_p50", "ttft_p99", "itl_p99")]
        cells = [row["tool"], row["mode"], str(row["concurrency"]), *pairs]
        cells += [f"{row['delivered']:.1%}" if row["mode"] in ("spread", "sync") else ""]
        cells += [f"{row['us_per_event']:.1f}", f"{row['peak_mb']:.0f}", f"{row['first_request_s']:.2f}"]
        cells += [f"{row['wall_s']:.1f}", {None: "", True: "no", False: "yes"}[row.get("valid")]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _pair(row: Row, name: str) -> str:
    """Return a client's figure with the truth of the same run."""
    said = "none" if row[name] is None else f"{row[name]:.2f}"
    return f"{said} ({row['truth'][name]:.2f})"
