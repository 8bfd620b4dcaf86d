"""The linters and type checkers, as tests: the tree in, no complaint out."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lpxdoctor import galaxy

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def tracked(*patterns: str) -> tuple[str, ...]:
    """Return the files of the checkout that git tracks or would, ignored ones left out."""
    argv = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", *patterns)
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(name for name in names if (ROOT / name).is_file())


def shell_scripts() -> tuple[str, ...]:
    """Return the tracked files whose first line names a shell."""
    starts = ((name, (ROOT / name).read_bytes()[:64].split(b"\n")[0]) for name in tracked())
    return tuple(name for name, start in starts if start.startswith(b"#!") and start.endswith(b"sh"))


def assert_silent(tool: str, *argv: str, **settings: str) -> None:
    """Run a tool of the virtual environment at the root and show all it says when it complains."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"} | settings
    done = subprocess.run((BIN / tool, *argv), cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {' '.join(argv)}\n{done.stdout}\n{done.stderr}"


def test_ruff_check() -> None:
    assert_silent("ruff", "check")


def test_ruff_format() -> None:
    assert_silent("ruff", "format", "--check")


def test_imports_go_one_way() -> None:
    assert_silent("lint-imports")


def test_shellcheck() -> None:
    scripts = shell_scripts()
    assert {"quickstart", "test", ".ci/run"} <= set(scripts)
    assert_silent("shellcheck", *scripts)


def test_yamllint() -> None:
    assert_silent("yamllint", "--strict", *tracked("*.yml", "*.yaml", ".yamllint", ".ansible-lint"))


@pytest.mark.slow
def test_mypy() -> None:
    assert_silent("mypy")


@pytest.mark.slow
def test_pyright() -> None:
    assert_silent("pyright", "--warnings")


@pytest.mark.slow
def test_ansible_lint() -> None:
    # With the collections, or ansible-lint cannot tell whether a module of theirs exists.
    assert_silent("ansible-lint", "playbooks", ANSIBLE_COLLECTIONS_PATH=str(galaxy.ensure()))


def directly_locked(lock: str, asked_for_by: str) -> set[str]:
    """Return the projects that a lock file holds because pyproject.toml asks for them, by uv's own remarks."""
    remark = re.compile(rf"\({re.escape(asked_for_by)}\)$", re.MULTILINE)
    blocks = re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8"))
    return {block.split("==")[0] for block in blocks if remark.search(block)}


def named(requirements: list[object]) -> set[str]:
    """Return the canonical names of requirements; included groups left out."""
    return {canonicalize_name(Requirement(entry).name) for entry in requirements if isinstance(entry, str)}


def test_the_locks_hold_what_pyproject_asks_for_and_no_more() -> None:
    asked: dict[str, Any] = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    groups = asked["dependency-groups"]
    for lock in ("requirements.lock", "requirements-dev.lock"):
        assert directly_locked(lock, "pyproject.toml") == named(asked["project"]["dependencies"])
    assert directly_locked("requirements.lock", "pyproject.toml:build") == named(groups["build"])
    assert directly_locked("requirements-dev.lock", "pyproject.toml:dev") == named(groups["dev"] + groups["build"])


@pytest.mark.slow
def test_what_is_locked_is_new_enough() -> None:
    # --no-index: all is installed, so pip only compares.
    assert_silent("pip", "install", "--dry-run", "--no-index", "--quiet", "--no-build-isolation", "--editable", ".")


def test_pre_commit_runs_every_tool_of_these_tests() -> None:
    configured = (ROOT / ".pre-commit-config.yaml").read_text()
    for tool in (
        "ruff check",
        "ruff format",
        "mypy",
        "pyright",
        "lint-imports",
        "shellcheck",
        "yamllint",
        "ansible-lint",
    ):
        assert f"name: {tool}\n" in configured
