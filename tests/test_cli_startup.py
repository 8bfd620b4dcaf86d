"""What starting the program costs and loads, and that its commands, their help and the README agree."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import lpxdoctor.cli
from lpxdoctor import __version__
from lpxdoctor.cli import COMMANDS, group

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).with_name("lpxdoctor")
HEAVY = {"ansible", "ansible_runner", "docker", "httpx", "requests", "urllib3", "http.client", "asyncio", "uvloop"}

LOADED_BY = """
import sys
from lpxdoctor.__main__ import main
sys.argv[0] = "lpxdoctor"
status = main()
print("\\nloaded:", *sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""


def loaded_by(*argv: str) -> set[str]:
    """Run the program in a child process and return the names of all modules it had loaded at its end."""
    done = subprocess.run((sys.executable, "-c", LOADED_BY, *argv), capture_output=True, text=True, check=False)
    assert "\nloaded:" in done.stderr, done.stderr
    return set(done.stderr.rsplit("\nloaded:", 1)[1].split())


def taken(*argv: str | Path) -> float:
    """Return the seconds of a processor that one run takes: others compute here too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_version_loads_no_command_line_library() -> None:
    assert not loaded_by("--version") & {"click", "rich", "msgspec", "pynvml", "importlib.metadata"}


def test_version_is_within_five_times_a_bare_interpreter() -> None:
    # Pairs, and the best of each: another process on the machine slows both or is not there.
    pairs = [(taken(sys.executable, "-c", "pass"), taken(PROGRAM, "--version")) for _ in range(12)]
    bare, version = (min(times) for times in zip(*pairs, strict=True))
    assert version < 5 * bare


def test_check_loads_neither_ansible_nor_docker_nor_an_http_client() -> None:
    assert not loaded_by("check", "--no-container-test") & HEAVY


def test_every_module_of_the_command_line_is_a_command() -> None:
    files = Path(lpxdoctor.cli.__file__).parent.glob("[!_]*.py")
    assert {file.stem for file in files} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help(command: str) -> None:
    answer = CliRunner().invoke(group, [command, "--help"])
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(f"Usage: group {command}")
    options = answer.output.split("Options:", 1)[1]
    assert all(len(line.split("  ")) > 1 for line in options.splitlines() if line.strip().startswith("-"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_in_the_readme(command: str) -> None:
    assert f"lpxdoctor {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_version_says_the_same_in_both_ways() -> None:
    long = subprocess.run((PROGRAM, "--version"), capture_output=True, text=True, check=True).stdout
    assert long == f"lpxdoctor {__version__}\n"
