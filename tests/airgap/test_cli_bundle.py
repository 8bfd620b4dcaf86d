"""The command: what is typed wrongly has one clear answer, and show tells what apply would use."""

from pathlib import Path

import pytest

from lpxdoctor.airgap import archive
from lpxdoctor.airgap.manifest import encode
from lpxdoctor.airgap.target import named
from lpxdoctor.cli import run
from tests.airgap.bundles import written


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
    assert capsys.readouterr().out.encode() == encode(archive.show(file)[0])
