"""baseline -i: a row for every deployment of the hosts, and for each host that has none; the worst exit status."""

import json
from pathlib import Path

import pytest

from lpxdoctor import deployments
from lpxdoctor.cli import run
from lpxdoctor.deployments import Deployment
from tests.decode.peer import serving
from tests.decode.script import Script
from tests.report.schemas import valid

SHORT = ("--concurrency", "1,2", "--requests", "4", "--input-len", "8", "--output-len", "4")
HOSTS = "gpu-1,gpu-2,gpu-3"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def record(name: str, host: str, url: str) -> None:
    deployments.save(
        Deployment(
            name=name,
            host=host,
            url=url,
            served_model="peer",
            api_key_file=None,
            image="sha256:0",
            engine_version="0",
            arguments=(),
            model_path="/nowhere",
            ssh=(),
            created="2026-11-29T00:00:00+00:00",
        )
    )


def test_every_deployment_and_every_host_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Script()) as peer:
        record("a@gpu-1", "gpu-1", peer.url)
        record("b@gpu-1", "gpu-1", peer.url)
        record("a@gpu-2", "gpu-2", "http://127.0.0.1:1")
        record("a@other", "other", peer.url)
        status = run(["baseline", "-i", HOSTS, "--format", "json", *SHORT])
        document = json.loads(capsys.readouterr().out)
        valid(document, "baselines-1")
        rows = document["rows"]
        assert run(["baseline", "a", "-i", "gpu-1", *SHORT]) in (
            0,
            1,
        )  # a busy machine measures what cannot be compared
        table = capsys.readouterr().out.splitlines()
    assert status == 2
    assert [(row["host"], row["deployment"]) for row in rows] == [
        *(("gpu-1", "a@gpu-1"), ("gpu-1", "b@gpu-1")),
        *(("gpu-2", "a@gpu-2"), ("gpu-3", None)),
    ]
    assert [row["profile"] is not None for row in rows] == [True, True, False, False]
    assert Path(rows[0]["file"]).is_file()
    assert "127.0.0.1:1" in rows[2]["why"]
    assert rows[3]["why"] == "a deployment is not recorded here"
    assert [line.split()[:3] for line in table] == [
        ["host", "deployment", "at"],
        ["gpu-1", "a@gpu-1", "1"],
        ["gpu-1", "a@gpu-1", "2"],
    ]


@pytest.mark.parametrize("options", [("--from", "last"), ("-o", "x.json"), ("--format", "html")])
def test_what_is_for_one_alone_is_refused(options: tuple[str, ...]) -> None:
    assert run(["baseline", "-i", "gpu-1", *options]) == 64
