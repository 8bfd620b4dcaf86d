"""What `lpxdoctor check` costs, side by side with the tools that look at the same host, interleaved in one run.

    python benchmarks/check.py [--rounds 10] [--peers DIRECTORY] [--write docs/results/check-speed.md]

Measured per round: `check --no-container-test` (CPU of the process and all its children, and wall time),
`docker info`, `nvidia-smi -q` where there is one, and the peers. Besides: the slowest probe, from the times that
`collect` records, and how long the whole catalogue takes on recorded evidence in a process that has just started.
Every program finds its bytecode compiled, as installed ones do. Peers are installed from the package index into
DIRECTORY, one virtual environment each; without --peers none is. The exit status is 1 when a goal is missed here.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(sys.executable).with_name("lpxdoctor")
CHECK = (str(PROGRAM), "check", "--no-container-test")
PEERS = {"cuda-doctor": ("diagnose",), "gpumedic": ("scan",), "env-doctor": ("check",)}
KNOWLEDGE_MS = 20
EVALUATION_MS = 50
BEYOND_SLOWEST_S = 0.3
IMPORTS = "import click, msgspec, rich.console"
WHY = """\
Less CPU than `nvidia-smi -q` and `docker info` together is out of reach of a Python program: the rows above show what
the interpreter, its libraries and judging recorded evidence cost before anything is asked. On a host with GPUs, NVML's
Python bindings and bringing up a CUDA context come on top; the latter is the proof that `nvidia-smi` does not give."""

# In a child of its own: what is read once (tables, patterns) is part of the first evaluation, as in `check`.
EVALUATE = """
import datetime, json, sys, time
from pathlib import Path
from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import from_json
checks, site = catalog.load(None), policy.load()
evidence = from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
taken = []
for _ in range(5):
    started = time.perf_counter()
    evaluate(checks, evidence, site, datetime.date.today())
    taken.append((time.perf_counter() - started) * 1000)
print(json.dumps([len(checks), taken[0], min(taken)]))
"""

LOAD = """
import time
from functools import cached_property
from lpxdoctor.knowledge import Knowledge, tables_of
taken = []
for _ in range(5):
    tables_of.cache_clear()
    started = time.perf_counter()
    fresh = Knowledge()
    for name, member in vars(Knowledge).items():
        if isinstance(member, cached_property):
            getattr(fresh, name)
    taken.append((time.perf_counter() - started) * 1000)
print(min(taken))
"""


@dataclass(frozen=True)
class Run:
    """One run of a command: seconds of CPU, its children's included, and of wall time."""

    cpu_s: float
    wall_s: float
    status: int


def main() -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peers", type=Path, metavar="DIRECTORY", help="install them there, or use those that are")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the result as a page, too")
    arguments = parser.parse_args()
    commands = commands_of(arguments.peers)
    with tempfile.TemporaryDirectory(prefix="bytecode-") as cache:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = cache
        page, met = measure(commands, arguments.rounds)
    print(page)
    if arguments.write:
        arguments.write.write_text(page + "\n", encoding="utf-8")
    return 0 if met else 1


def measure(commands: dict[str, tuple[str, ...]], rounds: int) -> tuple[str, bool]:
    """Return the page, and whether every goal is met here."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    slowest: list[tuple[float, str]] = []
    for number in range(rounds + 1):
        for name, argv in commands.items():
            done = measured(argv)
            if number:  # the first fills caches
                runs[name].append(done)
        slowest.append(slowest_probe())
    evaluations = {path.parent.name: evaluated(path) for path in sorted((ROOT / "tests/hosts").glob("*/evidence.json"))}
    page = "\n".join(lines(commands, runs, slowest[1:], evaluations))
    return page, all(met for _, met in goals(runs, slowest[1:], evaluations))


def commands_of(peers: Path | None) -> dict[str, tuple[str, ...]]:
    """Return {name: argv} of what is measured here."""
    recorded = str(ROOT / "tests/hosts/no-gpu/evidence.json")
    commands: dict[str, tuple[str, ...]] = {
        "lpxdoctor check": CHECK,
        "lpxdoctor check --from FILE": (str(PROGRAM), "check", "--from", recorded),
        "python -c 'import click, msgspec, rich.console'": (
            sys.executable,
            "-c",
            "import click, msgspec, rich.console",
        ),
        "python -c pass": (sys.executable, "-c", "pass"),
    }
    for argv in (("docker", "info"), ("nvidia-smi", "-q")):
        if found := shutil.which(argv[0]):
            commands[" ".join(argv)] = (found, *argv[1:])
    if peers:
        for name, argv in PEERS.items():
            commands[f"{name} {version_of(name, peers)}"] = (str(peers / name / "bin" / name), *argv)
    return commands


def version_of(peer: str, directory: Path) -> str:
    """Return a peer's version, after it was installed where it is not yet."""
    python = directory / peer / "bin" / "python"
    if not python.exists():
        subprocess.run((sys.executable, "-m", "venv", directory / peer), check=True)
        subprocess.run((python, "-m", "pip", "install", "-q", peer), check=True)
    ask = f"from importlib.metadata import version; print(version({peer!r}))"
    return subprocess.run((python, "-c", ask), capture_output=True, text=True, check=True).stdout.strip()


def measured(argv: Sequence[str]) -> Run:
    """Run a command with its output thrown away."""
    started = time.perf_counter()
    null = subprocess.DEVNULL
    process = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Run(usage.ru_utime + usage.ru_stime, time.perf_counter() - started, process.returncode)


def slowest_probe() -> tuple[float, str]:
    """Return (seconds, key) of the probe that took longest in one collection."""
    done = subprocess.run((PROGRAM, "collect", "--no-container-test"), capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)["answers"]
    return max((answer.get("seconds", 0.0), key) for key, answer in answers.items())


def evaluated(evidence: Path) -> tuple[int, float, float]:
    """Return (checks, ms of the first evaluation, ms of the fastest of five): the median of five processes."""
    outputs = [
        subprocess.run((sys.executable, "-c", EVALUATE, evidence), capture_output=True, text=True, check=True, cwd=ROOT)
        for _ in range(5)
    ]
    checks, first, again = zip(*(json.loads(done.stdout) for done in outputs), strict=True)
    return checks[0], statistics.median(first), statistics.median(again)


def knowledge() -> float:
    """Return the ms in which every table of lpxdoctor/knowledge is read anew: the median of five processes."""
    return statistics.median(
        float(subprocess.run((sys.executable, "-c", LOAD), capture_output=True, text=True, check=True, cwd=ROOT).stdout)
        for _ in range(5)
    )


def cpu(runs: Sequence[Run]) -> float:
    """Return the median CPU seconds."""
    return statistics.median(run.cpu_s for run in runs)


def wall(runs: Sequence[Run]) -> float:
    """Return the median wall seconds."""
    return statistics.median(run.wall_s for run in runs)


def goals(
    runs: dict[str, list[Run]], slowest: Sequence[tuple[float, str]], evaluations: dict[str, tuple[int, float, float]]
) -> list[tuple[str, bool]]:
    """Return each goal with its figures, and whether it is met here."""
    ours = runs["lpxdoctor check"]
    probe = statistics.median(seconds for seconds, _ in slowest)
    worst = max(first for _, first, _ in evaluations.values())
    tables = knowledge()
    reference = {name: cpu(runs[name]) for name in ("nvidia-smi -q", "docker info") if name in runs}
    both = " + ".join(reference) or "neither is here"
    return [
        (
            f"wall time at most the slowest probe + {BEYOND_SLOWEST_S} s: {wall(ours):.2f} s, that probe {probe:.2f} s",
            wall(ours) <= probe + BEYOND_SLOWEST_S,
        ),
        (f"the catalogue on recorded evidence under {EVALUATION_MS} ms: {worst:.0f} ms", worst < EVALUATION_MS),
        (f"all tables of the knowledge under {KNOWLEDGE_MS} ms: {tables:.0f} ms", tables < KNOWLEDGE_MS),
        (
            f"less CPU than nvidia-smi -q and docker info: {cpu(ours):.2f} s, {both} {sum(reference.values()):.2f} s",
            cpu(ours) < sum(reference.values()),
        ),
    ]


def lines(
    commands: dict[str, tuple[str, ...]],
    runs: dict[str, list[Run]],
    slowest: Sequence[tuple[float, str]],
    evaluations: dict[str, tuple[int, float, float]],
) -> list[str]:
    """Return the page."""
    ours = runs["lpxdoctor check"]
    version = subprocess.run((PROGRAM, "--version"), capture_output=True, text=True, check=True).stdout.strip()
    gpu = "" if "nvidia-smi -q" in commands else " This machine has no GPU, so what asks one is not in these figures."
    load = os.getloadavg()[0]
    busy = " Others kept this machine busy, which lengthens wall times." if load > (os.cpu_count() or 1) else ""
    command = " ".join(["benchmarks/check.py", *sys.argv[1:]])
    today = datetime.date.today()  # noqa: DTZ011 - a person's day
    where = f"Python {platform.python_version()}, {os.cpu_count()} CPUs ({platform.machine()})"
    page = [
        "# What a check costs",
        "",
        f"`python {command}` on {today}, {version}, {where}, load {load:.1f}.{gpu}",
        f"Medians of {len(ours)} interleaved rounds; CPU is user + system, the children's included.{busy}",
        "",
        "| command | CPU s | wall s | CPU, check = 1 | exit status |",
        "|---|---|---|---|---|",
    ]
    page += [
        f"| {name} | {cpu(done):.3f} | {wall(done):.2f} | {cpu(done) / cpu(ours):.2f} | {done[-1].status} |"
        for name, done in runs.items()
    ]
    page += ["", "| recorded evidence | checks | first evaluation ms | again ms |", "|---|---|---|---|"]
    page += [f"| {name} | {of} | {first:.1f} | {again:.1f} |" for name, (of, first, again) in evaluations.items()]
    seconds, key = statistics.median_low(slowest)
    page += ["", f"Slowest probe: `{key[:60]}`, {seconds:.2f} s.", "", "Goals:", ""]
    page += [f"- {'met' if met else 'missed'}: {goal}" for goal, met in goals(runs, slowest, evaluations)]
    return [*page, "", WHY]


if __name__ == "__main__":
    sys.exit(main())
