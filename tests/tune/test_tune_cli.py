"""The command line of `lpxdoctor tune`: wrong use is said before anything starts, and its report."""

import json
import sys
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from lpxdoctor import deployments
from lpxdoctor.cli import _host, run
from lpxdoctor.cli.tune import planned
from lpxdoctor.deploy.request import Request, asked
from lpxdoctor.deployments import Deployment
from lpxdoctor.report import tune as report
from lpxdoctor.tune import state as kept
from lpxdoctor.tune.accuracy import Accuracy
from lpxdoctor.tune.deployed import request_of
from lpxdoctor.tune.judge import rates
from lpxdoctor.tune.service import Hints, Settings
from lpxdoctor.tune.state import Row, State
from tests.report.schemas import valid
from tests.sizing.configs import QWEN_25_7B
from tests.sizing.hosts import H200, evidence, process
from tests.tune.test_command import ENGINE, RECIPE
from tests.tune.test_search import Simulated, tuned, wanted

RECORD = Deployment(
    name="q7",
    host="localhost",
    url="http://127.0.0.1:1",
    served_model="m",
    api_key_file=None,
    image="sha256:0",
    engine_version="0.25.1",
    arguments=("--model", "/model"),
    model_path="/srv/model",
    ssh=(),
    created="2026-11-29T00:00:00+00:00",
)


def recorded(**variables: object) -> None:
    request = Request(name="q7", variables={"engine_model": "/srv/model", **variables})
    deployments.save(msgspec.structs.replace(RECORD, asked=asked(request)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "vllm serve m"), "no {port}"),
        (("--engine", "nothing"), "No deployment named nothing"),
        (("--engine", RECIPE, "--keep"), "--keep is for deployments"),
        (("--engine", RECIPE, "--only", "weihgts"), "no such step"),
        (("--engine", RECIPE, "--try", "max-num-seqs"), "write arguments as on a command line"),
        (("--engine", RECIPE, "--try", "--a 'b"), "write the arguments as on a command line"),
        (("--engine", RECIPE, "--concurrency", "0"), "is not a list of numbers"),
        (("--engine", RECIPE, "--resume"), "nothing to resume"),
        (("--engine", RECIPE, "--prompts", "/no/such"), "cannot be read"),
        (("--engine", "/no/such/program {port} {arguments}"), "cannot be started"),
        ((), "Missing option '--engine'"),
    ],
)
def test_wrong_use_is_said(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", *options]) == 64
    assert said in capsys.readouterr().err


def test_an_engine_that_does_not_start_as_found_is_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    broken = f"{sys.executable} {ENGINE} --fails 'out of memory' --port {{port}} {{arguments}}"
    assert run(["tune", "--engine", broken]) == 2
    error = capsys.readouterr().err
    assert "ended with status 3: ValueError: out of memory" in error
    assert "INFO the end" in error
    assert "What it said: " in error


def test_an_old_record_or_one_with_secrets_cannot_be_rolled_out_again(capsys: pytest.CaptureFixture[str]) -> None:
    deployments.save(RECORD)
    assert run(["tune", "--engine", "q7"]) == 64
    assert "does not tell how it was deployed" in capsys.readouterr().err
    recorded(engine_secret_env={"HF_TOKEN": "hf_secret"})
    assert run(["tune", "--engine", "q7"]) == 64
    assert "HF_TOKEN from the environment" in capsys.readouterr().err
    assert "hf_secret" not in Path(deployments.save(deployments.load("q7"))).read_text()


def test_a_deployment_is_asked_for_as_before_but_for_the_settings() -> None:
    kept_of = asked(Request(name="q7", variables={"engine_model": "/m", "engine_arguments": ["--enforce-eager", "-x"]}))
    assert request_of("q7", kept_of, Settings(), 60).variables == kept_of.variables
    settings = Settings(("--max-num-seqs", "4"), ("--enforce-eager",))
    changed = request_of("q7", kept_of, settings, 400.4)
    assert changed.variables["engine_arguments"] == ["-x", "--max-num-seqs", "4"]
    assert repr(changed.variables["engine_ready_limit_s"]) == "400"
    assert (changed.name, changed.variables["engine_model"]) == ("q7", "/m")


def shown(state: State, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    report.render(state, console)
    text = console.file
    assert isinstance(text, StringIO)
    return text.getvalue()


def test_the_report_has_every_step_and_what_to_type() -> None:
    engine = Simulated({"--fast": 0.7, "--wrong": 0.5}, broken=("--broken",), wrong=("--wrong",))
    state = tuned(engine, wanted("--fast", "--wrong", "--broken", "--plain"))
    text = shown(state)
    assert "  add     --fast" in text
    assert "Faster, in tokens/s: 1.43 times at 1, 1.43 times at 32." in text.replace("\n", " ")
    for words in ("as found", "kept", "inaccurate", "did not start", "no gain", "--broken: it ended with status 1"):
        assert words in text, words
    answer = json.loads(report.to_json(state, "p.json"))
    valid(answer, "tune-1")
    assert answer["arguments"] == ["--fast"]
    assert answer["gain"]["32"] == pytest.approx(1 / 0.7 - 1)
    assert [row["outcome"] for row in answer["steps"]] == [row.outcome for row in state.rows]


def test_a_report_of_nothing_says_what_to_do() -> None:
    state = tuned(Simulated({}), wanted("--plain"))
    assert "Nothing that was tried was faster beyond noise" in shown(state)
    row = Row(
        step="x", added=("--y",), outcome=kept.UNJUDGED, why="1 at once: noise", accuracy=Accuracy(None, None, False)
    )
    unjudged = msgspec.structs.replace(state, rows=(state.rows[0], row), ended="")
    text = shown(unjudged)
    assert "Nothing that was tried could be judged" in text
    assert "--resume goes on from here" in text
    assert rates(state.first).keys() == {1, 32}


def test_a_run_out_of_budget_says_with_how_much_it_goes_on() -> None:
    state = tuned(Simulated({"--a": 0.7}, minutes_each=10), wanted("--a", "--b", "--c"), budget_min=35)
    text = " ".join(shown(state).split())
    assert "--b: what is left of the budget of 35 min, 5.0 min, does not last for 2 starts of up to 10.0 min" in text
    assert "--resume and --budget 20 or more goes on from here; 70 should last for all that is left." in text
    only = " ".join(shown(tuned(Simulated({"--a": 0.7}, minutes_each=10), wanted("--a"), budget_min=35)).split())
    assert "--resume and --budget 30 or more finishes it." in only


def test_a_deployments_own_memory_is_not_in_the_way_of_its_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine that is tuned fills the GPU: it ends before each start."""
    full = {**H200, "memory_mib": {"total": 143771, "free": 9000, "used": 134771}}
    full["processes"] = [process(7, "vllm", 134000)]
    monkeypatch.setattr(_host, "ask", lambda *_, **__: evidence(full))
    (tmp_path / "config.json").write_text(json.dumps(QWEN_25_7B))
    sizing = planned(Hints(model=str(tmp_path / "config.json")), 384)
    assert not isinstance(sizing, str)
    assert sizing.fits
    assert [form for form, _ in sizing.kv_tokens] == ["fp8"]
