"""Whatever looks like an id, in a report, a playbook, the docs or the code, is explained by `lpxdoctor explain`."""

import json
import re
from pathlib import Path

import pytest

from lpxdoctor import catalog
from lpxdoctor.check import CHAIN
from lpxdoctor.cli import run
from lpxdoctor.fleet.rules import RULES
from lpxdoctor.fleet.twins import Kind
from tests.test_json_outputs import LINES, ROOT
from tests.test_json_outputs import places as places  # noqa: PLC0414 - a fixture

CHECKS = {check.id: check for check in catalog.load(None)}
IDS = {*CHECKS, *(rule.id for rule in RULES.values())}
WORDS = (*CHAIN, "fleet")
LOOKS_LIKE_ONE = re.compile(rf"(?<![\w./-])(?:{'|'.join(WORDS)})\.[a-z0-9]+(?:-[a-z0-9]+)+(?![\w.-]*/|-?\w)")
SUFFIXES = {".py", ".toml", ".yml", ".j2", ".md", ".txt"}


def test_every_kind_of_what_is_judged_of_hosts_together_has_its_rule() -> None:
    assert set(RULES) == set(Kind.__args__)  # type: ignore[attr-defined]
    assert len({rule.id for rule in RULES.values()}) == len(RULES)


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_id_is_explained(form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    checks = catalog.load(None)
    monkeypatch.setattr(catalog, "load", lambda: checks)
    for id_ in IDS:
        assert run(["explain", id_, "--format", form]) == 0, id_
        said = capsys.readouterr().out
        if form == "text":
            assert all(f"\n{label}:\n  " in said for label in ("Why", "Fix", "Source")), id_
            assert f"\n{id_}, " in said
        else:
            told = json.loads(said)
            assert all(told[key] for key in ("title", "why", "fix", "source")), id_
            assert set(told["after"]) | set(told["before"]) <= IDS, id_


@pytest.mark.parametrize("directory", ["lpxdoctor", "checks", "playbooks", "docs"])
def test_what_looks_like_an_id_is_one(directory: str) -> None:
    files = [file for file in (ROOT / directory).rglob("*") if file.suffix in SUFFIXES]
    found = {id_: file for file in files for id_ in LOOKS_LIKE_ONE.findall(file.read_text(encoding="utf-8"))}
    assert {id_: file for id_, file in found.items() if id_ not in IDS} == {}
    assert len(found) > 10


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("line", [line for lines in LINES.values() for line, _ in lines])
def test_what_a_report_prints_as_an_id_is_one(
    line: str, form: str, places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run([*(word.format(**places) for word in line.split()), "--format", form])
    assert set(LOOKS_LIKE_ONE.findall(capsys.readouterr().out)) <= IDS
