"""Reports of fix: JSON valid against the published schema, and for people what is planned, done and to be typed."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lpxdoctor.cli import run
from lpxdoctor.fix.outcome import HostResult
from lpxdoctor.fix.plan import plan
from lpxdoctor.fix.state import Record, Wishes, save
from lpxdoctor.fix.work import GpuWork
from lpxdoctor.report import fix, fix_text
from lpxdoctor.report.encoding import pretty
from tests.fix.building import CATALOGUE, judged
from tests.report.schemas import valid

TYPED = ("lpxdoctor", "fix", "-i", "my hosts.yml")


def result(*wrong: str, host: str = "gpu-1", after: tuple[str, ...] | None = None, **more: Any) -> HostResult:
    before = judged(*wrong)
    made = plan(before, CATALOGUE, (), more.pop("work", GpuWork()))
    if after is None:
        return HostResult(host=host, plan=made, before=before, **more)
    targets = more.pop("targets", made.ids)
    return HostResult(host=host, plan=made, before=before, after=judged(*after), targets=targets, **more)


def printed(results: list[HostResult], *, ran: bool = False, recorded: bool = False) -> str:
    text = io.StringIO()
    console = Console(file=text, width=100)
    if ran:
        fix_text.render_run(results, console, (), TYPED)
    else:
        fix_text.render_plan(results, console, TYPED, recorded=recorded)
    return text.getvalue()


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([result()], 0),
        ([result("boot.b"), result()], 1),
        ([result("boot.b", "driver.b"), result("boot.a")], 2),
        ([HostResult(host="gpu-2", failure="nothing listens there.\nStart it.")], 2),
        ([result("boot.a", after=(), evidence=(Path("/before"), Path("/after")))], 0),
        ([result("boot.a", after=("boot.a",), next_boot=("boot.a",))], 1),
        ([result("boot.a", after=("boot.a",))], 2),
        ([result("boot.a", refused="its GPUs are at work")], 2),
    ],
)
def test_the_document_is_valid_and_has_the_worst_status(results: list[HostResult], status: int) -> None:
    document = json.loads(pretty(fix.document(results, (), ran=True)))
    valid(document, "fix-1")
    assert document["status"] == status
    assert [host["host"] for host in document["hosts"]] == [each.host for each in results]


def test_equal_plans_are_printed_once_with_what_to_type() -> None:
    text = printed([result("driver.a", host="gpu-1"), result("driver.a", host="gpu-2"), result("boot.a", host="gpu-3")])
    assert "gpu-1, gpu-2\n" in text
    assert text.count("Install") == 1
    assert "Run it: lpxdoctor fix -i 'my hosts.yml' --yes --reboot\n" in text
    assert "lpxdoctor fix --resume" in text


def test_a_plan_from_a_record_is_not_said_to_be_runnable() -> None:
    assert "Run it" not in printed([result("driver.a")], recorded=True)


def test_what_a_step_stops_is_named() -> None:
    text = printed([result("driver.a", work=GpuWork(("vllm (engine)",)))])
    assert "stops GPU work: vllm (engine)" in text
    assert "--drain 120" in text
    assert "no interruption" in printed([result("boot.a")])
    assert "could not be seen (NVML failed)" in printed([result("driver.a", work=GpuWork(unseen="NVML failed"))])


def test_what_nobody_can_judge_is_not_called_right() -> None:
    unread = judged(unreadable=True)
    text = printed([HostResult(host="gpu-1", plan=plan(unread, CATALOGUE, (), GpuWork()), before=unread)])
    assert "8 of 8 checks could not be judged" in text
    assert "✓ nothing to put right" in printed([result()])


def test_before_and_after_are_printed_and_evidence_where_it_failed() -> None:
    text = printed(
        [result("boot.a", "boot.b", after=("boot.b", "driver.a"), evidence=(Path("/b"), Path("/a")))], ran=True
    )
    assert "before  1 failure, 1 warning" in text
    assert "after   1 failure, 1 warning" in text
    assert "✓ gone   boot.a" in text
    assert "✗ left   boot.b: boot.b is in the state" in text
    assert "seen now  Something is wrong  (driver.a)" in text
    assert "evidence  /b" in text
    assert "evidence  /a" in text
    assert "Next: lpxdoctor check -i 'my hosts.yml'" in text


def test_a_reboot_that_is_waited_for_is_said() -> None:
    text = printed([result("boot.a", after=("boot.a",), next_boot=("boot.a",))], ran=True)
    assert "waits for a reboot: boot.a" in text
    assert "lpxdoctor fix --resume" in text
    assert "put right" not in text


def test_every_host_has_its_own_end() -> None:
    failed = HostResult(host="gpu-2", failure="nothing listens there.\nStart it.")
    text = printed([failed, result("boot.a", host="gpu-3", after=())], ran=True)
    assert "✗ gpu-2: nothing listens there.\n  Start it." in text
    assert "✓ gpu-3: put right and checked again" in text


def test_what_a_run_after_the_boot_kept_is_told_once_in_either_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    results = {"a": result("boot.b", host="a"), "b": result(host="b")}
    for form in ("text", "json"):
        for name in ("a", "b"):
            document = fix.document([results[name]], (), ran=True)
            record = Record(
                host=name,
                wishes=Wishes(source="a,b"),
                started="2026-11-29T00:00:00+00:00",
                stage="finished",
                targets=(),
                before="",
                said=f"{name} is put right\n",
                document=pretty(document),
            )
            save(record)
        assert run(["fix", "--resume", "--format", form]) == 1
        said = capsys.readouterr().out
        if form == "text":
            assert said == "a is put right\nb is put right\n"
        else:
            told = json.loads(said)
            valid(told, "fix-1")
            assert (told["status"], [host["host"] for host in told["hosts"]]) == (1, ["a", "b"])
        assert run(["fix", "--resume"]) == 64
        assert "Nothing waits to be resumed" in capsys.readouterr().err
