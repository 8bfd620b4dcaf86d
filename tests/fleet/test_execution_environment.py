"""images/ee: what ansible-builder makes of it, with a real wheel, and that its versions are those of the lock."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.test_tools import tracked

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = "images/ee/execution-environment.yml"


def test_its_versions_are_those_that_are_locked() -> None:
    told: dict[str, Any] = yaml.safe_load((ROOT / DEFINITION).read_text())["dependencies"]
    locked = (ROOT / "requirements.lock").read_text()
    for name in ("ansible_core", "ansible_runner"):
        pinned = told[name]["package_pip"]
        row = re.search(rf"^{re.escape(pinned)}(.*)$", locked, re.MULTILINE)
        assert row, pinned
        assert "python_full_version" not in row[1] or ">= '3.12'" in row[1]
    assert told["python_interpreter"]["python_path"] == "/usr/bin/python3.12"


@pytest.mark.slow
def test_ansible_builder_makes_a_context_of_it(tmp_path: Path) -> None:
    copy, context = tmp_path / "checkout", tmp_path / "context"
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=copy)
    said = run(Path(sys.executable).with_name("ansible-builder"), "create", "-f", DEFINITION, "-c", context, cwd=copy)
    assert "No matches" not in said
    assert len(list((context / "_build/lpxdoctor").glob("lpxdoctor-*.whl"))) == 1
    assert (context / "_build/requirements.yml").read_bytes() == (ROOT / "playbooks/requirements.yml").read_bytes()
    made = (context / "Dockerfile").read_text()
    final = made.rpartition("\nFROM ")[2]
    assert "COPY _build/lpxdoctor /usr/src/lpxdoctor" in final
    assert "--require-hashes -r /usr/src/lpxdoctor/requirements.lock" in final
    assert "ARG PYCMD" in final


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr
