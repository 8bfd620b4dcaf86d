"""The streaming client, and others beside it, against a server whose times are known: who tells what it really did.

    python benchmarks/peers.py ~/.cache/lpx-peers          # once: virtual environments of the others, 6 GB
    python benchmarks/decode_client.py --peers ~/.cache/lpx-peers [--truth PROGRAM]

The server is truth.c beside this file, compiled for the run, or another program with the same arguments and answers:
it streams completions on an absolute schedule and tells at GET /stats?reset what it really did. Every error is against
what happened in that very run, over all its requests. Clients that are not there are left out of the comparisons, and
goals that compare with them alone are not judged. The exit status is 1 when a goal is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cost import cost
from decode_goals import MOST, Row, judged
from decode_page import page
from peers import INPUT_LEN, OUTPUT_LEN, PEERS, TOKENIZER, size_mb
from truth import ROOT, compiled, ideal_tokens_per_s, serving, stats

REQUESTS = {1: 10, 16: 80, 64: 320, MOST: 1024}
HEAVY = {"torch", "transformers", "tokenizers", "numpy", "aiohttp", "httpx", "pydantic"}


def main() -> int:
    """Measure, print the page, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, help="another server whose times are known")
    parser.add_argument("--peers", type=Path, help="directory of the other clients' environments")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--write", type=Path, help="write the page there")
    parser.add_argument("--one", nargs=3, metavar=("URL", "CONCURRENCY", "REQUESTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        url, concurrency, requests = arguments.one
        print(json.dumps(one(url, int(concurrency), int(requests))))
        return 0
    home = arguments.peers and arguments.peers.expanduser().resolve()
    with tempfile.TemporaryDirectory() as directory:
        truth = arguments.truth.resolve() if arguments.truth else compiled(Path(directory))
        rows = [ours(truth, mode, concurrency) for mode, concurrency in cases()]
        rows += [theirs(truth, home, name) for name in PEERS if home and (home / name).exists()]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    found = judged(rows)
    text = page(rows, found)
    print(text)
    if arguments.write:
        arguments.write.write_text(text + "\n")
    missed = [goal for goal in found if goal.met is False]
    for goal in missed:
        print(f"missed: {goal.goal}: {goal.figures}", file=sys.stderr)
    return int(bool(missed))


def cases() -> list[tuple[str, int]]:
    """Return what this client is measured at; the others only where it hurts: at the most at once."""
    return [*(("spread", concurrency) for concurrency in REQUESTS), ("sync", MOST), ("fast", 64), ("spread x4", 16)]


def ours(truth: Path, mode: str, concurrency: int) -> Row:
    """Run the loop for its errors, then the whole command for its cost."""
    requests = REQUESTS[concurrency]
    with serving(truth, mode) as url:
        argv = (sys.executable, str(Path(__file__)), "--one", url, str(concurrency), str(requests))
        row: Row = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)
        row |= {"tool": "lpxdoctor", "mode": mode, "concurrency": concurrency, "truth": stats(url)}
        row["load"] = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", "lpxdoctor", "baseline", url, "--concurrency", str(concurrency)]
            command += ["--requests", str(requests), "--input-len", str(INPUT_LEN), "--output-len", str(OUTPUT_LEN)]
            taken = cost([*command, "--format", "json", "-o", f"{directory}/profile.json"], url)
        row |= {name: figure for name, figure in taken.items() if name != "truth"}
    row["delivered"] = row["tokens_per_s"] / ideal_tokens_per_s(concurrency)
    return row


def one(url: str, concurrency: int, requests: int) -> Row:
    """Run the client's loop in this process and summarise all of its requests, as the truth server does."""
    from lpxdoctor.decode.endpoint import endpoint  # noqa: PLC0415 - the parent process needs none of it
    from lpxdoctor.decode.hooks import Hooks  # noqa: PLC0415
    from lpxdoctor.decode.load import Loop  # noqa: PLC0415
    from lpxdoctor.decode.stats import gaps_ms, percentile, steady_window, tokens_in, tpot_of, ttft_of  # noqa: PLC0415
    from lpxdoctor.decode.validity import judge  # noqa: PLC0415
    from lpxdoctor.decode.workload import Workload  # noqa: PLC0415

    work = Workload(model="mock", input_len=INPUT_LEN, output_len=OUTPUT_LEN, nonce=str(time.time_ns()))
    before = time.process_time()
    recording = Loop(endpoint(url), work, concurrency, requests, timeout_s=60, hooks=Hooks()).run()
    cpu_s = time.process_time() - before
    samples = [sample for sample in recording.samples if not sample.failure]
    ttft, itl = sorted(map(ttft_of, samples)), sorted(gap for sample in samples for gap in gaps_ms(sample))
    tpot = sorted(value for sample in samples if (value := tpot_of(sample)) is not None)
    window = steady_window(recording)
    assert window is not None
    rung = judge(recording, engine=None, gpus=(), kv_cache_tokens=None, block_size=None, input_len=INPUT_LEN)
    names = {name.partition(".")[0] for name in sys.modules}
    prompts = [part.prompt(number) for part in (work, work.part("rung1"), work.part("rung2")) for number in range(1000)]
    return {
        "failures": [sample.failure for sample in recording.samples if sample.failure],
        "ttft_p50": percentile(ttft, 0.50),
        "ttft_p99": percentile(ttft, 0.99),
        "itl_p99": percentile(itl, 0.99),
        "tpot_p50": percentile(tpot, 0.50),
        "tokens_per_s": tokens_in(samples, *window) / (window[1] - window[0]) * 1e9,
        "loop_us_per_event": cpu_s * 1e6 / sum(len(sample.arrivals_ns) for sample in samples),
        "valid": rung.valid,
        "invalid_because": rung.invalid_because,
        "bound_share": rung.client.worst_share,
        "busy_share": busy_share(samples, *window, concurrency),
        "heavy_modules": sorted(HEAVY & names),
        "modules_mb": modules_mb(names),
        "prompts_alike": len(prompts) - len({prompt[:80] for prompt in prompts}),  # a cache's first block: 16 ids
    }


def busy_share(samples: Sequence[Any], opened_ns: int, closed_ns: int, concurrency: int) -> float:
    """Return which share of the window, over all slots, a request was under way."""
    spans = ((max(sample.started_ns, opened_ns), min(sample.arrivals_ns[-1], closed_ns)) for sample in samples)
    return float(sum(max(0, end - start) for start, end in spans) / (closed_ns - opened_ns) / concurrency)


def modules_mb(names: set[str]) -> float:
    """Return what the packages loaded from site-packages take on disk."""
    total = 0.0
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and "site-packages" in file:
            found = Path(file)
            total += size_mb(found.parent) if found.name == "__init__.py" else found.stat().st_size / 1e6
    return total


def theirs(truth: Path, home: Path, name: str) -> Row:
    """Run another client once at the most at once."""
    peer = PEERS[name]
    with serving(truth, "spread") as url, tempfile.TemporaryDirectory() as directory:
        model, work = Path(directory, "model"), Path(directory, "work")
        work.mkdir()
        subprocess.run((sys.executable, str(TOKENIZER), str(model)), check=True)
        argv = peer.argv(home / name, url, model, work, MOST, REQUESTS[MOST])
        row: Row = {"tool": peer.requirement, "mode": "spread", "concurrency": MOST, **cost(argv, url)}
        row |= asdict(peer.read(work)) | {"load": os.getloadavg()[0], "install_mb": size_mb(home / name)}
    row["delivered"] = row["truth"]["tok"] / row["truth"]["span_s"] / ideal_tokens_per_s(MOST)
    return row


if __name__ == "__main__":
    sys.exit(main())
