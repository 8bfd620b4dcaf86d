"""baseline --name, --against, --repeats and --evidence: kept, compared, and refused before anything is measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor.cli import run
from lpxdoctor.cli.compare import STATUS
from lpxdoctor.decode import store
from tests.decode.peer import serving_apart
from tests.decode.script import Script
from tests.report.schemas import valid as published

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--concurrency", "2", "--requests", "16", "--input-len", "24", "--output-len", "8")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def measured(url: str, *options: str) -> int:
    return run(["baseline", url, *SHORT, *options])


def test_a_name_is_kept_and_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_apart(Script(ttft_s=0.02, gap_s=0.01)) as url:
        assert measured(url, "--name", "main") in (0, 1)
        capsys.readouterr()
        status = measured(url, "--against", "main")
        said = capsys.readouterr().out
    assert store.find("main").name == "main"
    assert f"main ({store.find('main').id})" in said
    assert said.index("→") < said.index(store.find("last").id, said.index("→"))
    assert status in (0, 1, 2, 3)
    with serving_apart(Script(ttft_s=0.04, gap_s=0.02)) as url:
        status = measured(url, "--against", "main", "--format", "json")
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        published(answer, "baseline-1")
    verdict = answer["comparison"]["verdict"]
    assert status == (STATUS[verdict] or (0 if answer["rungs"][0]["valid"] else 1))
    # A busy machine may make a line invalid, and that is not judged; twice the time is found in any other.
    valid = answer["rungs"][0]["valid"] and store.find("main").rungs[0].valid
    assert verdict == ("slower" if valid else "unjudged")
    assert answer["comparison"]["b"]["id"] == answer["id"] == store.find("last").id


def test_repeats_measure_all_so_often_and_keep_their_variance(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_apart(Script(ttft_s=0.005, gap_s=0.002)) as url:
        assert measured(url, "--repeats", "3", "--format", "json") in (0, 1)
    answer = json.loads(capsys.readouterr().out)
    assert [rung["concurrency"] for rung in answer["rungs"]] == [2, 2, 2]
    usable = sum(rung["valid"] for rung in answer["rungs"])
    assert (answer["pooled_variance"] or {}).get("tpot", {}).get("degrees", 0) == max(0, usable - 1)


def test_evidence_of_the_host_is_kept_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = ROOT / "tests/hosts/h200-cdi/evidence.json"
    with serving_apart(Script(ttft_s=0.005, gap_s=0.002)) as url:
        assert measured(url, "--evidence", str(evidence), "--format", "json") in (0, 1)
    found = json.loads(capsys.readouterr().out)["evidence"]
    assert len(found) == 12
    assert int(found, 16)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--against", "main"), "No baseline is meant by 'main'"),
        (("--name", "last"), "is no name"),
        (("--name", ""), "--name is empty"),
        (("--evidence", "README.md"), "holds no evidence"),
        (("--repeats", "0"), "--repeats"),
    ],
)
def test_wrong_use_is_said_before_anything_is_measured(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured("http://127.0.0.1:9", *options) == 64
    assert said in capsys.readouterr().err


def test_a_ladder_climbs_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["baseline", "http://127.0.0.1:9", "--ladder", "1,2", "--repeats", "2"]) == 64
    assert "a ladder climbs once" in capsys.readouterr().err
