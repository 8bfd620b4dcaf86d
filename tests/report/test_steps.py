"""The shortest way through several causes: each step once, playbooks together, a reboot once and last."""

import io
from dataclasses import replace

from rich.console import Console

from lpxdoctor import catalog
from lpxdoctor.check import Finding, Severity
from lpxdoctor.evaluate import Judgement, Result, State
from lpxdoctor.report import json
from lpxdoctor.report.steps import steps
from lpxdoctor.report.text import render

CHECKS = {check.id: check for check in catalog.load(None)}


def failed(id_: str, *do: str) -> Result:
    return Result(CHECKS[id_], State.FOUND, Severity.FAIL, (Finding("seen", do=do),))


def judged(*results: Result) -> Judgement:
    return Judgement("gpu-1", {}, results, 0.8)


def text_of(judgement: Judgement) -> str:
    file = io.StringIO()
    render(judgement, Console(file=file, width=100))
    return file.getvalue()


def test_playbooks_come_together_and_the_reboot_comes_last() -> None:
    judgement = judged(
        failed("boot.nvidia-blacklisted", "sudoedit /etc/modprobe.d/x.conf"),
        failed("gpu.lost", "sudo ipmitool sel list", "sudo reboot"),
        failed("container.docker-not-answering", "sudo systemctl start docker"),
    )
    assert steps(judgement) == (
        "sudo lpxdoctor fix boot.nvidia-blacklisted container.docker-not-answering",
        "sudo ipmitool sel list",
        "sudo reboot",
    )


def test_two_causes_that_want_a_reboot_get_one() -> None:
    judgement = judged(failed("gpu.lost", "sudo reboot"), failed("host.gpu-does-not-answer", "reboot"))
    assert steps(judgement) == ("sudo reboot",)


def test_a_cause_without_a_command_is_not_left_out() -> None:
    assert steps(judged(failed("host.no-gpu"))) == ("lpxdoctor explain host.no-gpu",)


def test_what_a_text_shows_has_no_playbook_here() -> None:
    judgement = replace(judged(failed("boot.nvidia-blacklisted", "sudoedit /etc/modprobe.d/x.conf")), excerpt=True)
    assert steps(judgement) == ("sudoedit /etc/modprobe.d/x.conf",)
    assert "lpxdoctor fix" not in text_of(judgement)


def test_a_warning_is_no_step() -> None:
    warned = replace(failed("gpu.lost", "sudo reboot"), severity=Severity.WARN)
    assert steps(judged(warned)) == ()


def test_the_report_numbers_them_where_there_is_more_than_one_cause() -> None:
    one = failed("boot.nvidia-blacklisted", "sudoedit /etc/modprobe.d/x.conf")
    other = failed("gpu.lost", "sudo reboot")
    alone, both = text_of(judged(one)), text_of(judged(one, other))
    assert "in this order" not in alone
    assert "sudo lpxdoctor fix boot.nvidia-blacklisted" in alone
    assert "or by hand:" in alone
    assert "in this order" in both
    assert both.index("  1  sudo lpxdoctor fix boot.nvidia-blacklisted") < both.index("  2  sudo reboot")
    assert json.document(judged(one, other)).steps == steps(judged(one, other))
