"""The command: what is typed wrongly has one clear answer, and show tells what apply would use."""

import json
from pathlib import Path

import pytest
from msgspec import convert

from lpxdoctor.airgap import archive
from lpxdoctor.airgap.apply import Applied
from lpxdoctor.airgap.manifest import Image, Manifest
from lpxdoctor.airgap.target import named
from lpxdoctor.cli import run
from lpxdoctor.report import bundle as report
from tests.airgap.bundles import contents, manifest_of, written
from tests.report.schemas import valid


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["create"], "--for"),
        (["create", "--for", "windows11"], "There are: debian12"),
        (["create", "engine", "--for", "debian12"], "'engine' is not one of"),
        (["create", "--for", "debian12", "-o", "x.zip"], "every host's Python can read"),
        (["create", "--for", "debian12", "--variant", "none"], "There is no variant none"),
        (["apply", "x.tar"], "Where to?"),
        (["apply", "x.tar", "--local", "-i", "a"], "exclude each other"),
        (["apply", "x.tar", "-i", "host"], "There is no file"),
        (["show", "x.tar"], "There is no file"),
    ],
)
def test_wrong_use(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bundle", *argv]) == 64
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


def test_an_impossible_date_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert run(["bundle", "create", "--for", "debian12", "--package", "hello", "-o", str(tmp_path / "a.tar")]) == 64
    assert "SOURCE_DATE_EPOCH" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_show_tells_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "bundle.tar.gz", named("debian13"))
    _, digest = archive.show(file)
    assert run(["bundle", "show", str(file), "--verify"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("for debian 13 (amd64): 0 packages")
    assert f"manifest sha256 {digest}" in told
    assert "every hash was compared" in told
    assert run(["bundle", "show", str(file), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["manifest_sha256"], told["verified"]) == (digest, False)
    assert convert(told["manifest"], Manifest) == archive.show(file)[0]


def test_what_became_of_hosts_is_told_to_programs_too(tmp_path: Path) -> None:
    manifest = manifest_of(contents(tmp_path), images=(Image(reference="a:1", id="sha256:0", file="a", source="b"),))
    done = Applied(manifest=manifest, changed={"b": 0, "a": 3})
    document = json.loads(report.applied_json(done))
    valid(document, "bundle-apply-1")
    assert document["hosts"] == [{"host": "a", "changed": 3}, {"host": "b", "changed": 0}]
    assert document["images"] == [{"reference": "a:1", "id": "sha256:0"}]
    assert report.applied(done).splitlines()[:2] == ["a: 3 changes", "b: nothing to change"]
