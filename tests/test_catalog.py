"""The whole catalogue, closed-world: every check explains itself, stands in the chain, and imports no way to act."""

import ast
from pathlib import Path

import pytest

from lpxdoctor import bundled, catalog
from lpxdoctor.check import CHAIN, Check, Severity
from lpxdoctor.errors import UsageError
from lpxdoctor.evaluate import facts_of, probes_of
from lpxdoctor.report.typed import is_command

CHECKS = catalog.load(None)
FILES = sorted(bundled.CHECKS.glob("*.py"))
IMPORTABLE = (
    "collections.abc",
    "collections.Counter",
    "packaging.version",
    "lpxdoctor.check",
    "lpxdoctor.facts",
    "lpxdoctor.policy",
    "lpxdoctor.knowledge",
    "lpxdoctor.evidence",
)
# What is judged with or without a GPU: how the machine itself does, and what stands in the way of its containers.
WITHOUT_GPU = ("host.", "container.", "engine.", "boot.", "decode.")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_explains_itself(check: Check[...]) -> None:
    assert check.title
    assert not check.title[0].islower() or check.title.startswith("nvidia")
    assert len(check.title) <= 110, "a headline fits on a line and a half of a terminal"
    assert len(check.why) > 40
    assert len(check.cure) > 10
    assert check.source
    assert not check.fix or check.fix in CHAIN


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_id_says_where_its_check_stands(path: Path) -> None:
    word = path.stem.partition("_")[0]
    assert word in CHAIN
    for check in catalog.load_file(path):
        assert check.id.startswith(f"{word}.")
        assert f'"{check.id}"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_check_file_can_only_judge(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            pytest.fail(f"{path.name} imports {node.names[0].name}")
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert all(name.startswith(IMPORTABLE) for name in names), f"{path.name} imports {names}"


def test_every_check_is_tested_by_name() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path("tests").rglob("*.py"))
    assert not [check.id for check in CHECKS if check.id not in tests and f" {check.function.__name__}(" not in tests]


def test_what_needs_a_gpu_waits_for_one() -> None:
    waits = {"host.no-gpu"}
    for check in CHECKS:  # each stands behind what it follows from
        if waits.intersection(check.after):
            waits.add(check.id)
    alone = {check.id for check in CHECKS if check.id not in waits and not check.id.startswith(WITHOUT_GPU)}
    judged_without = {"driver.harmful-environment"}
    assert {check.id for check in CHECKS if check.id in alone and check.severity is Severity.FAIL} <= judged_without


def test_there_are_enough_and_their_probes_are_few() -> None:
    assert len(CHECKS) >= 140
    assert len(probes_of(CHECKS)) < 130
    assert len(facts_of(CHECKS)) < 30


def test_commands_of_a_fix_are_indented_and_so_are_not_run_together() -> None:
    cures = {check.id: check.cure.splitlines() for check in CHECKS}
    assert cures["boot.initramfs-allows-nouveau"][1:] == [
        "    sudo update-initramfs -u -k all        # Debian, Ubuntu",
        "    sudo dracut --force --regenerate-all   # RHEL, Rocky",
    ]
    for id_, lines in cures.items():
        for line in lines:
            assert len(line) - len(line.lstrip()) in {0, 4}, id_
            assert len(lines) == 1 or not (line.startswith(("sudo ", "printf ")) and is_command(line)), (id_, line)


def test_an_id_that_nothing_has_is_answered_with_those_that_may_be_meant() -> None:
    for typed, wanted in (
        ("nouveau", "driver.nouveau-bound"),
        ("driver.librarymismatch", "driver.library-mismatch"),
        ("root@gpu-12", "-i"),
        ("evidence.json", "--from"),
    ):
        with pytest.raises(UsageError, match=wanted):
            catalog.chosen(CHECKS, [typed])


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text("")
    (tmp_path / "site.py").chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        catalog.load(tmp_path)


def test_a_sites_check_is_loaded_like_the_bundled_ones(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "site.py").write_text(
        "from collections.abc import Iterator\n"
        "from lpxdoctor.check import Finding, Severity, check\n"
        "from lpxdoctor.facts.host import Host\n\n\n"
        '@check("site.ours", Severity.WARN, layer="hardware", after=["host.no-gpu"])\n'
        "def ours(host: Host) -> Iterator[Finding]:\n"
        '    """Ours.\n\n    Why: we want it.\n    Fix: do it.\n    """\n'
        "    yield Finding(host.kernel)\n"
    )
    (tmp_path / "site.py").chmod(0o644)
    assert "site.ours" in {check.id for check in catalog.load(tmp_path)}


def test_a_sites_check_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "site.py").write_text("import nonexistent_module\n")
    (tmp_path / "site.py").chmod(0o644)
    with pytest.raises(UsageError, match=r"site\.py cannot be loaded: ModuleNotFoundError"):
        catalog.load(tmp_path)
