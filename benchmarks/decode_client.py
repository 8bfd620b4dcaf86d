"""The streaming client against a server whose times are known: its errors, the load it delivers and what it costs.

    python benchmarks/decode_client.py --truth PATH [--mode spread,sync,fast] [--concurrency 1,16,64,256]

PATH is a truth server: `PATH PORT TTFT_US ITL_US TOKENS_PER_CHUNK MODE` serves /v1/completions on an absolute schedule
and answers GET /stats?reset with what it really did (TTFT and inter-chunk percentiles in ms). Every error below is
against what happened in that very run, over all its requests. The exit status is 1 when a goal is missed.
"""

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
INPUT_LEN, OUTPUT_LEN = 128, 128
TTFT_MS, GAP_MS = 50, 10
REQUESTS = {1: 10, 16: 80, 64: 320, 256: 1024}
GOALS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "TTFT p50 error <= 1 ms": lambda row: abs(row["ttft_p50"] - row["truth"]["ttft_p50"]) <= 1,
    "TTFT p99 error <= 5 ms": lambda row: abs(row["ttft_p99"] - row["truth"]["ttft_p99"]) <= 5,
    "ITL p99 within 3 % or flagged": lambda row: (
        abs(row["itl_p99"] / row["truth"]["itl_p99"] - 1) <= 0.03 or not row["valid"]
    ),
    "load >= 98 % of ideal": lambda row: row["tokens_per_s"] >= 0.98 * row["ideal_tokens_per_s"],
    "first request <= 0.5 s": lambda row: row["first_request_s"] <= 0.5,
    "memory <= 60 MB": lambda row: row["rss_mb"] <= 60,
}


def main() -> int:
    """Measure, print a table, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, help="a compiled truth server")
    parser.add_argument("--mode", default="spread")
    parser.add_argument("--concurrency", default="1,16,64,256")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--one", nargs=3, metavar=("URL", "CONCURRENCY", "REQUESTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        url, concurrency, requests = arguments.one
        print(json.dumps(one(url, int(concurrency), int(requests))))
        return 0
    if arguments.truth is None or not os.access(arguments.truth, os.X_OK):
        parser.error("--truth must name a compiled truth server")
    rows = [
        measured(arguments.truth, mode, int(concurrency))
        for mode in arguments.mode.split(",")
        for concurrency in arguments.concurrency.split(",")
    ]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    print_table(rows)
    return report_goals([row for row in rows if row["mode"] != "fast"])


def one(url: str, concurrency: int, requests: int) -> dict[str, Any]:
    """Run the client's loop in this process and summarise all of its requests, as the truth server does."""
    from lpxdoctor.decode.endpoint import endpoint  # noqa: PLC0415 - the parent process needs none of it
    from lpxdoctor.decode.hooks import Hooks  # noqa: PLC0415
    from lpxdoctor.decode.load import Loop  # noqa: PLC0415
    from lpxdoctor.decode.stats import gaps_ms, percentile, steady_window, tokens_in  # noqa: PLC0415
    from lpxdoctor.decode.validity import judge  # noqa: PLC0415
    from lpxdoctor.decode.workload import Workload  # noqa: PLC0415

    work = Workload(model="mock", input_len=INPUT_LEN, output_len=OUTPUT_LEN, nonce=str(time.time_ns()))
    before = time.process_time()
    recording = Loop(endpoint(url), work, concurrency, requests, timeout_s=60, hooks=Hooks()).run()
    cpu_s = time.process_time() - before
    samples = recording.samples
    ttft = sorted((sample.arrivals_ns[0] - sample.started_ns) / 1e6 for sample in samples)
    itl = sorted(gap for sample in samples for gap in gaps_ms(sample))
    window = steady_window(recording)
    assert window is not None
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=INPUT_LEN)
    return {
        "failures": [sample.failure for sample in samples if sample.failure],
        "ttft_p50": percentile(ttft, 0.50),
        "ttft_p99": percentile(ttft, 0.99),
        "itl_p50": percentile(itl, 0.50),
        "itl_p99": percentile(itl, 0.99),
        "tokens_per_s": tokens_in(samples, *window) / (window[1] - window[0]) * 1e9,
        "loop_us_per_event": cpu_s * 1e6 / sum(len(sample.arrivals_ns) for sample in samples),
        "valid": rung.valid,
        "invalid_because": rung.invalid_because,
        "bound_share": rung.client.worst_share,
    }


def measured(truth: Path, mode: str, concurrency: int) -> dict[str, Any]:
    """Run the loop for its errors, then the whole command for its cost; return one row."""
    requests = REQUESTS.get(concurrency, 4 * concurrency)
    with serving(truth, mode) as url:
        argv = (sys.executable, str(Path(__file__)), "--one", url, str(concurrency), str(requests))
        row: dict[str, Any] = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)
        stats = get(url, "/stats?reset")
        row |= {"mode": mode, "concurrency": concurrency, "requests": requests, "truth": stats}
        row |= cost_of_the_command(url, concurrency, requests)
    ideal_s = (TTFT_MS + GAP_MS * (OUTPUT_LEN - 1)) / 1000
    row["ideal_tokens_per_s"] = math.nan if mode == "fast" else concurrency * OUTPUT_LEN / ideal_s
    row["load"] = os.getloadavg()[0]
    return row


def cost_of_the_command(url: str, concurrency: int, requests: int) -> dict[str, Any]:
    """Run `lpxdoctor baseline` and return what it took: CPU, memory, time from its start to its first request."""
    with tempfile.TemporaryDirectory() as directory:
        argv = [sys.executable, "-m", "lpxdoctor", "baseline", url, "--concurrency", str(concurrency)]
        options = ["--requests", str(requests), "--input-len", str(INPUT_LEN), "--output-len", str(OUTPUT_LEN)]
        where = ["--format", "json", "-o", f"{directory}/profile.json"]
        started = time.time()
        process = subprocess.Popen([*argv, *options, *where], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        profile = json.loads(Path(directory, "profile.json").read_bytes())
    stats = get(url, "/stats?reset")
    return {
        "first_request_s": stats["first_req_real"] - started,
        "rss_mb": usage.ru_maxrss / 1024,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "us_per_event": (usage.ru_utime + usage.ru_stime) * 1e6 / stats["chunks"],
        "command_valid": profile["rungs"][0]["valid"],
    }


@contextmanager
def serving(truth: Path, mode: str) -> Generator[str]:
    """Start the truth server on a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [str(truth), str(port), str(TTFT_MS * 1000), str(GAP_MS * 1000), "1", mode]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def get(url: str, path: str) -> dict[str, Any]:
    """GET a JSON answer."""
    sys.path.insert(0, str(ROOT))
    from lpxdoctor.decode.endpoint import endpoint  # noqa: PLC0415
    from lpxdoctor.decode.engine import fetch  # noqa: PLC0415

    answer: dict[str, Any] = json.loads(fetch(endpoint(url), path)[1])
    return answer


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print Markdown, as the results pages have it."""
    names = ["mode", "c", "TTFT p50 (truth)", "p99 (truth)", "ITL p50 (truth)", "p99 (truth)", "tok/s", "of ideal"]
    names += ["loop us/event", "command us/event", "RSS MB", "first request s", "flagged", "load"]
    print("| " + " | ".join(names) + " |")
    print("|" + " --- |" * len(names))
    for row in rows:
        truth = row["truth"]
        pairs = [f"{row[name]:.2f} ({truth[name]:.2f})" for name in ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99")]
        share = row["tokens_per_s"] / row["ideal_tokens_per_s"]
        cells = [row["mode"], str(row["concurrency"]), *pairs, f"{row['tokens_per_s']:.0f}", f"{share:.1%}"]
        cells += [f"{row['loop_us_per_event']:.1f}", f"{row['us_per_event']:.1f}", f"{row['rss_mb']:.1f}"]
        cells += [f"{row['first_request_s']:.2f}", "no" if row["valid"] else "yes", f"{row['load']:.1f}"]
        print("| " + " | ".join(cells) + " |")


def report_goals(rows: list[dict[str, Any]]) -> int:
    """Print each goal with where it was missed; return the exit status."""
    missed = False
    for goal, holds in GOALS.items():
        where = [f"{row['mode']} {row['concurrency']}" for row in rows if not holds(row)]
        missed = missed or bool(where)
        print(f"{'missed' if where else 'met   '}  {goal}" + (f": {', '.join(where)}" if where else ""))
    for row in rows:
        if not row["valid"] or row["failures"]:
            print(f"{row['mode']} {row['concurrency']}: {row['invalid_because']} {row['failures'][:1] or ''}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
