"""One table of exit statuses: the same mistake ends every command alike, and the page says what each command says.

Commands and options are taken from the command line itself. What is typed here is refused before anything is done.
"""

import os
import sys
from pathlib import Path

import click
import pytest

from docs import statuses
from lpxdoctor.airgap.target import named
from lpxdoctor.cli import run
from tests.airgap.bundles import written
from tests.command_tree import LEAVES, option
from tests.sizing import checkpoints, configs
from tests.test_json_outputs import LINES, ROOT
from tests.test_json_outputs import places as places  # noqa: PLC0414 - a fixture

NOBODY = "nothing-of-that-name"
ENGINE = "false {port} {arguments}"
UNREADABLE = Path("/proc", str(os.getpid()), "mem")  # nobody can read its beginning, root neither
RECORDED = str(ROOT / "tests" / "hosts" / "h200-cdi" / "evidence.json")
PROFILE = str(ROOT / "docs" / "results" / "h200-profile.json")
# What a command needs besides the file that is wrong, where that is more than its required words.
BESIDE = {
    "check --policy": ("--from", RECORDED),
    "fix --policy": ("--from", RECORDED),
    "fix --vars": ("-i", "127.0.0.1:1"),
    "plan --from": ("--context", "64"),
    "deploy --vars": ("--local", "--model", "/m"),
    "deploy --inventory": ("--model", "/m"),
    "provision --vars": ("-i", "127.0.0.1:1", "--plan"),
    "provision --policy": ("-i", "127.0.0.1:1", "--plan"),
    "bundle apply --vars": ("--local",),
    "bundle apply file": ("--local",),
    "bundle create --vars": ("--for", "debian12"),
    "baseline --api-key-file": ("http://127.0.0.1:1",),
    "baseline --evidence": ("http://127.0.0.1:1",),
    "collect --inventory": ("-o", "fleet"),
    "tune --api-key-file": ("--engine", ENGINE),
    "tune --prompts": ("--engine", ENGINE),
    "compare a": (PROFILE,),
}
FILES = {"FILE", "FILE|DIR", "[FILE|-]", "HOSTS", "PROFILE", "A", "B"}


def reads_a_file(parameter: click.Parameter) -> bool:
    named_so = parameter.metavar or ("FILE" if isinstance(parameter.type, click.Path) else "")
    return named_so in FILES and "--output" not in parameter.opts


PLACES = [
    (words, parameter) for words, command in LEAVES.items() for parameter in command.params if reads_a_file(parameter)
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("bundle") / "b.tar.gz", named("debian13"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def typed(words: tuple[str, ...], parameter: click.Parameter, value: object, bundle: Path) -> list[str]:
    name = option(parameter)
    where = f"{' '.join(words)} {name}"
    given = list(BESIDE.get(where, ()))
    if words == ("bundle", "apply") and name != "file":
        given.insert(0, str(bundle))
    if words == ("undeploy",):
        given.insert(0, "vllm")
    if words == ("plan",) and name != "model":
        given.insert(0, str(checkpoints.directory(Path.cwd() / "m", configs.QWEN_25_7B)))
    if where == "compare b":
        return [*words, PROFILE, str(value)]
    return [*words, str(value), *given] if isinstance(parameter, click.Argument) else [*words, *given, name, str(value)]


def test_files_are_read_in_many_places() -> None:
    names = {f"{' '.join(words)} {option(parameter)}" for words, parameter in PLACES}
    assert len(names) > 25
    assert set(BESIDE) <= names
    assert {"undeploy --inventory", "deploy --inventory", "check --inventory", "diagnose source"} <= names


@pytest.mark.parametrize(
    ("words", "parameter"), PLACES, ids=[f"{' '.join(words)} {option(parameter)}" for words, parameter in PLACES]
)
def test_a_file_that_cannot_be_used_is_wrong_use_everywhere(
    words: tuple[str, ...],
    parameter: click.Parameter,
    bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "directory").mkdir()
    values = (
        (UNREADABLE,) if parameter.metavar == "HOSTS" else (tmp_path / "none.yml", tmp_path / "directory", UNREADABLE)
    )
    for value in values:
        argv = typed(words, parameter, value, bundle)
        assert run(argv) == 64, (argv, capsys.readouterr().err)
        said = capsys.readouterr()
        assert said.err.startswith("lpxdoctor: "), argv
        assert str(value) in said.err, argv
        assert not said.out, argv


@pytest.mark.parametrize(
    "line",
    [
        *("explain nothing.of-that-name", "check nothing.of-that-name", "fix nothing.of-that-name"),
        *(f"fix nothing.of-that-name --from {RECORDED}", f"check nothing.of-that-name --from {RECORDED}"),
        *(f"baseline {NOBODY}", f"undeploy {NOBODY}", f"tune --engine {NOBODY}"),
        *(f"baseline --from {NOBODY}", f"compare {NOBODY} {PROFILE}", f"compare {PROFILE} {NOBODY}"),
        *(f"baseline http://127.0.0.1:1 --against {NOBODY}", f"plan {ROOT} --gpu {NOBODY}"),
        *(f"provision -i a --variant {NOBODY} --plan", f"bundle create --for debian12 --variant {NOBODY}"),
        *(f"bundle create --for {NOBODY}", f"provision {NOBODY} -i a", f"tune --engine a --only {NOBODY}"),
        *("fix --resume", "provision -i a --resume", "undeploy a/b", "deploy --local --model /m --name a/b"),
    ],
)
def test_what_there_is_not_is_wrong_use_everywhere(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 64
    said = capsys.readouterr()
    assert said.err.startswith(("lpxdoctor: ", "Usage: "))
    assert not said.out


STATE = (
    *("fix --resume", "fix -i 127.0.0.1:1 --yes", "provision -i 127.0.0.1:1", "provision -i 127.0.0.1:1 --resume"),
    *("baseline http://127.0.0.1:1", "baseline vllm", "baseline -i a", "baseline --from last"),
    *("compare last last", "undeploy vllm", "tune --engine vllm"),
)


@pytest.mark.parametrize("line", STATE)
def test_a_state_directory_that_cannot_be_used_is_no_empty_one(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    assert run(line.split()) == 3, capsys.readouterr().err
    said = capsys.readouterr()
    assert "/dev/null/state" in said.err
    assert "XDG_STATE_HOME" in said.err
    assert "Errno" not in said.err
    assert not said.out


@pytest.mark.parametrize("line", ["check", "fix", "fix --yes", "collect -o fleet"])
def test_a_host_that_does_not_answer_is_a_failure(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*line.split(), "-i", "127.0.0.1:1"]) == 2
    said = capsys.readouterr()
    assert "nothing listens for SSH" in " ".join((said.out + said.err).split())


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("line", [line for lines in LINES.values() for line, _ in lines])
def test_an_output_that_cannot_be_written_is_no_verdict(
    line: str, form: str, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*(word.format(**places) for word in line.split()), "--format", form]
    with open(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8") as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", full)
        assert run(argv) == 3
    assert "the output cannot be written: No space left on device" in capsys.readouterr().err


def test_the_page_is_up_to_date() -> None:
    written_page = (ROOT / "docs" / "exit-status.md").read_text(encoding="utf-8")
    assert written_page == statuses.page(), "type: python docs/statuses.py > docs/exit-status.md"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_says_what_it_ends_with(words: tuple[str, ...]) -> None:
    told = statuses.statuses(LEAVES[words])
    assert {0, 64} <= set(told) <= {*statuses.OWN, *statuses.COMMON}
    assert all(told.values())
