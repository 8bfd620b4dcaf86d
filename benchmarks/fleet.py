"""What a fleet costs: judging recorded hosts, and asking real SSH hosts beside `ansible -m setup` on the same hosts.

    python benchmarks/fleet.py [--hosts 1000] [--containers 20] [--rounds 3] [--write docs/results/fleet.md]

The recorded hosts are copies of tests/hosts, each with a name, kernel, driver and Docker version of its own; they are
made in a temporary directory and say "copy-" in their names. The SSH hosts are containers of tests/lab in which an SSH
server runs alone, asked by turns; needs root and Docker. CPU is user + system time: this machine's, with all children,
and on the SSH hosts what their control groups count. Memory is the sum of the resident sets of all processes, shared
pages counted in each, looked up 20 times a second, or that of the largest one at its own highest. The exit status is 1
when a goal is missed.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.lab.engine import LAB, build, container, docker, free_port, run, wait_until  # noqa: E402 - by the line above
from tests.lab.hosts import Engine, Host, login_files, write_inventory  # noqa: E402

PROGRAM = str(Path(sys.executable).with_name("lpxdoctor"))
GOAL_S, GOAL_MIB = 20.0, 500
FORMATS = ("text", "json", "html")


@dataclass(frozen=True)
class Run:
    """One command: seconds of CPU here, of wall time, and MiB of memory at its highest."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def measured(argv: Sequence[str], environment: Mapping[str, str], expected: Sequence[int] = (0,)) -> Run:
    """Run a command that ends with an expected status."""
    started, peak = time.monotonic(), 0.0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **environment})
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, sum(resident_mib(pid) for pid in tree(process.pid)))
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in expected:
            said.seek(0)
            sys.exit(f"{argv} ended with {process.returncode}\n{said.read().decode()}")
    # The largest process alone may have been larger for a moment than all of them when they were looked up.
    return Run(usage.ru_utime + usage.ru_stime, time.monotonic() - started, max(peak, usage.ru_maxrss / 1024))


def tree(root: int) -> Iterator[int]:
    """Yield a process and all below it."""
    yield root
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{root}/task/{root}/children").read_text().split():
            yield from tree(int(child))


def resident_mib(pid: int) -> float:
    """Return the resident set of a process, 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def copies(directory: Path, count: int) -> None:
    """Write recorded hosts that differ: three real ones, with a few versions that real fleets have side by side."""
    texts = [path.read_text() for path in sorted((ROOT / "tests/hosts").glob("*/evidence.json"))]
    for number in range(count):
        text = texts[0 if number % 10 else number // 10 % len(texts)]
        text = text.replace('"host": "host"', f'"host": "copy-{number:04}"', 1)
        if number % 97 == 0:
            text = text.replace("6.18.44-gpu", "6.18.41-gpu")
        if number % 89 == 0:
            text = text.replace("580.159.04", "580.95.05")
        (directory / f"copy-{number:04}.json").write_text(text)


def judging(count: int) -> tuple[list[str], bool]:
    """Return lines about judging recorded hosts, and whether the goals are met."""
    lines = [
        f"## {count:,} recorded hosts: `lpxdoctor check --from DIR`",
        "",
        "| format | wall s | CPU s | CPU ms a host | memory MiB |",
        "|---|---|---|---|---|",
    ]
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as place:
        copies(Path(place), count)
        for form in FORMATS:
            # A copy has no GPU, so the fleet's report is a failure's.
            run = measured((PROGRAM, "check", "--from", place, "--format", form), {}, expected=(2,))
            runs.append(run)
            each = run.cpu_s / count * 1000
            lines.append(f"| {form} | {run.wall_s:.1f} | {run.cpu_s:.1f} | {each:.1f} | {run.peak_mib:.0f} |")
    cpus = len(os.sched_getaffinity(0))
    worst = max(runs, key=lambda run: run.wall_s)
    in_time = worst.wall_s < GOAL_S
    cpu_s, peak_mib = max(run.cpu_s for run in runs), max(run.peak_mib for run in runs)
    alone = f"their CPU time alone is {cpu_s / cpus:.1f} s of each"
    time_goal = f"under {GOAL_S:.0f} s on {cpus} CPUs: {worst.wall_s:.1f} s; {alone}"
    lines += ["", goal(time_goal, in_time), goal(f"under {GOAL_MIB} MiB: {peak_mib:.0f} MiB", peak_mib < GOAL_MIB), ""]
    return lines, in_time and peak_mib < GOAL_MIB


def goal(words: str, met: bool) -> str:
    """Return a goal's line."""
    return f"- {'met' if met else 'missed'}: {words}"


def asking(count: int, rounds: int) -> tuple[list[str], bool]:
    """Return lines about asking real SSH hosts, and whether it costs less than Ansible's setup."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        image = build(LAB / "build", Engine.NONE.value)
        hosts = [stack.enter_context(started(image, number, place)) for number in range(count)]
        for host in hosts:
            wait_until(partial(answers, host), host.name, partial(docker, "logs", host.container_id), timeout_s=60)
        inventory = str(write_inventory(place / "hosts.yml", hosts))
        settings = {"ANSIBLE_CONFIG": str(ROOT / "playbooks/ansible.cfg"), "ANSIBLE_HOME": str(place / "ansible")}
        groups = [usage_file(host) for host in hosts]
        # Without the connections that Ansible keeps for 15 s: each command pays for its own.
        cold = {**settings, "ANSIBLE_SSH_ARGS": "-o ControlMaster=no"}
        setup = (sys.executable, "-m", "ansible", "adhoc", "-i", inventory, "all", "-m", "setup", "-f", str(count))
        runs: dict[str, list[tuple[Run, float]]] = {
            "lpxdoctor collect": [],
            "lpxdoctor collect, 5 at once": [],
            "ansible -m setup": [],
            "the same, pipelined": [],
        }
        for turn in range(rounds):
            target = place / f"fleet-{turn}"
            collect = (PROGRAM, "collect", "-i", inventory, "--no-container-test")
            at_once = (*collect, f"--output={target}", f"--forks={count}")
            few = (*collect, f"--output={target}-few", "--forks=5")
            commands: tuple[tuple[Sequence[str], dict[str, str]], ...] = (
                (at_once, {}),
                (few, {}),
                (setup, cold),
                (setup, {**cold, "ANSIBLE_PIPELINING": "True"}),
            )
            for own, (argv, environment) in zip(runs.values(), commands, strict=True):
                before = sum(map(used_s, groups))
                done = measured(argv, environment)
                own.append((done, sum(map(used_s, groups)) - before))
            answered = [len(json.loads(path.read_text())["answers"]) for path in target.iterdir()]
            assert len(answered) == count, "not every host has answered"
            assert min(answered) > 50, "not every question was answered"
    return compared(count, runs)


@contextlib.contextmanager
def started(image: str, number: int, place: Path) -> Iterator[Host]:
    """Start an SSH server in a container, without systemd: a kernel's limits allow few of those at once."""
    name, port, directory = f"bench-{number}", free_port(), place / str(number)
    directory.mkdir()
    key = directory / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    serve = "ssh-keygen -q -A && mkdir -p /run/sshd && exec /usr/sbin/sshd -D"
    options = ("--hostname", name, "--publish", f"127.0.0.1:{port}:22", "--init")
    files = login_files(Engine.NONE, key, port)
    with container(image, *options, command=("sh", "-c", serve), files=files) as identity:
        yield Host(name=name, container_id=identity, port=port, key=key, known_hosts=directory / "known_hosts")


def answers(host: Host) -> bool:
    """Tell whether a host lets us in, and note its key."""
    with contextlib.suppress(AssertionError):
        public = docker("exec", host.container_id, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        host.known_hosts.write_text(f"[127.0.0.1]:{host.port} {public}\n")
        return host.ssh("echo in") == "in"
    return False


def usage_file(host: Host) -> Path:
    """Return where the kernel counts the CPU time of a container."""
    pid = docker("inspect", "--format", "{{.State.Pid}}", host.container_id)
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuacct" in controllers:
            return Path(f"/sys/fs/cgroup/{controllers}{path.removesuffix('/init.scope')}/cpuacct.usage")
        if not controllers:
            return Path(f"/sys/fs/cgroup{path.removesuffix('/init.scope')}/cpu.stat")
    sys.exit(f"no control group counts the CPU time of {host.name}")


def used_s(file: Path) -> float:
    """Return the seconds of CPU that a control group has used."""
    text = file.read_text()
    return int(text.split()[1]) / 1e6 if file.name == "cpu.stat" else int(text) / 1e9


def compared(count: int, runs: dict[str, list[tuple[Run, float]]]) -> tuple[list[str], bool]:
    """Return the table: medians, a host."""
    lines = [
        f"## {count} SSH hosts, {count} at once, {len(next(iter(runs.values())))} round(s) by turns",
        "",
        "| command | CPU ms a host, here | there | both | ratio | wall s, all hosts |",
        "|---|---|---|---|---|---|",
    ]
    both: dict[str, float] = {}
    for name, own in runs.items():
        here = statistics.median(run.cpu_s for run, _ in own) / count * 1000
        there = statistics.median(used for _, used in own) / count * 1000
        both[name] = statistics.median(run.cpu_s + used for run, used in own) / count * 1000
        ratio = both[name] / next(iter(both.values()))
        wall = statistics.median(run.wall_s for run, _ in own)
        lines.append(f"| {name} | {here:.0f} | {there:.0f} | {both[name]:.0f} | {ratio:.2f} | {wall:.1f} |")
    ours, theirs = (
        [value for name, value in both.items() if name.startswith("lpxdoctor") == mine] for mine in (True, False)
    )
    less = max(ours) < min(theirs)
    lines += ["", goal("less CPU a host than `ansible -m setup`, pipelined or not", less), ""]
    return lines, less


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--containers", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    told = parser.parse_args()
    argv = " ".join(sys.argv[1:])
    head = (
        f"`python benchmarks/fleet.py{' ' + argv if argv else ''}` on {datetime.date.today()}, "  # noqa: DTZ011
        f"lpxdoctor {version('lpxdoctor')}, ansible-core {version('ansible-core')}, "
        f"Python {platform.python_version()}, "
        f"{len(os.sched_getaffinity(0))} CPUs ({platform.machine()}), load {os.getloadavg()[0]:.1f}."
    )
    lines = [
        "# What a fleet costs",
        "",
        head,
        "Others' work on the machine lengthens wall times, and CPU times a little.",
        "",
    ]
    met = True
    if told.hosts:
        more, met = judging(told.hosts)
        lines += more
    if told.containers:
        more, less = asking(told.containers, told.rounds)
        lines += more
        met = met and less
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if told.write:
        told.write.write_text(text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
