"""Every command that tells programs something: what it prints is what is published of it, and nothing is left out.

The commands are taken from the command line itself: one without a published schema fails here.
"""

import json
from pathlib import Path

import click
import pytest

from lpxdoctor.airgap.target import named
from lpxdoctor.cli import run
from lpxdoctor.report.schemas import DOCUMENTS
from tests.airgap.bundles import written
from tests.command_tree import LEAVES
from tests.report.schemas import commands, valid
from tests.sizing import checkpoints, configs

ROOT = Path(__file__).resolve().parent.parent
HOSTS = ROOT / "tests" / "hosts"
RESULTS = ROOT / "docs" / "results"
# Document -> what prints it with "--format json" behind it, needs nothing but this machine, and its exit status.
LINES: dict[str, tuple[tuple[str, int], ...]] = {
    "report-1": (
        ("check --from {healthy}", 0),
        ("check --from {broken}", 2),
        ("diagnose {broken}", 2),
        ("diagnose {prose}", 3),
    ),
    "fleet-1": (("check --from {healthy} --from {broken} --from {healthy}", 2),),
    "checks-1": (("checks", 0),),
    "explain-1": (("explain driver.library-mismatch", 0), ("explain fleet.gpu-twice", 0)),
    "knowledge-1": (("knowledge", 0),),
    "fix-1": (("fix --from {healthy}", 0), ("fix --from {broken}", 2), ("fix -i 127.0.0.1:1", 2)),
    "plan-1": (("plan {model} --gpu L4", 0), ("plan {model} --gpu L4 --concurrency 65536", 2)),
    "provision-plan-1": (("provision -i a,b,c --plan", 0),),
    "bundle-1": (("bundle show {bundle}", 0), ("bundle show {bundle} --verify", 0)),
    "baseline-1": (("baseline --from {profile}", 0),),
    "baselines-1": (("baseline -i a,b", 2),),
    "compare-1": (("compare {profile} {tuned}", 3),),
}
# What needs a host, an engine or a network: the tests of each say where else it is valid, and all runs in the lab.
ELSEWHERE = {
    "deploy-1": "report/test_deploy.py",
    "undeploy-1": "report/test_deploy.py",
    "provision-1": "provision/test_run.py",
    "bundle-apply-1": "airgap/test_cli_bundle.py",
    "tune-1": "tune/test_tune_cli.py",
}


def tells_programs(command: click.Command) -> bool:
    return any(isinstance(one.type, click.Choice) and "json" in one.type.choices for one in command.params)


def test_every_command_has_a_form_for_programs_that_is_published() -> None:
    published = {words for name in DOCUMENTS for words in commands(name)}
    assert {words for words, command in LEAVES.items() if tells_programs(command)} | {("collect",)} == published
    assert published == set(LEAVES)
    assert {*LINES, *ELSEWHERE, "evidence-1"} == set(DOCUMENTS)


@pytest.mark.parametrize(("name", "file"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_what_needs_more_is_validated_by_its_own_tests(name: str, file: str) -> None:
    assert f'"{name}")' in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    prose = tmp_path / "prose.txt"
    prose.write_text("The first token takes nine seconds.\n", encoding="utf-8")
    return {
        "healthy": HOSTS / "h200-cdi" / "evidence.json",
        "broken": ROOT / "tests" / "fix" / "hosts" / "nouveau.json",
        "prose": prose,
        "model": checkpoints.directory(tmp_path / "Qwen2.5-7B-Instruct", configs.QWEN_25_7B),
        "bundle": written(tmp_path / "bundle.tar.gz", named("debian13")),
        "profile": RESULTS / "h200-profile.json",
        "tuned": RESULTS / "decode-h200-tuned.json",
    }


@pytest.mark.parametrize(
    ("name", "line", "status"),
    [(name, line, status) for name, lines in LINES.items() for line, status in lines],
)
def test_real_output_is_valid(
    name: str, line: str, status: int, places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [word.format(**places) for word in line.split()]
    assert run([*argv, "--format", "json"]) == status, capsys.readouterr().err
    valid(json.loads(capsys.readouterr().out), name)


def test_evidence_of_this_host_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "--no-container-test"]) == 0
    valid(json.loads(capsys.readouterr().out), "evidence-1")


@pytest.mark.parametrize("recorded", sorted(HOSTS.glob("*/evidence.json")), ids=lambda file: file.parent.name)
def test_recorded_evidence_is_valid(recorded: Path) -> None:
    valid(json.loads(recorded.read_text(encoding="utf-8")), "evidence-1")
