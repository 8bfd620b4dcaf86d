"""A run: which hosts are where when it stops, and what goes on after it. Steps are of this file; the rest is real."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from lpxdoctor.errors import UsageError
from lpxdoctor.provision import record as records
from lpxdoctor.provision.record import Host, Phase, Record, Wishes
from lpxdoctor.provision.run import Ended, Result, Step, planned, resumed, run
from lpxdoctor.report import provision as report
from tests.report.schemas import valid

NAMES = tuple("abcdefg")
Planted = dict[tuple[Phase, str], Ended | type[BaseException]]


@dataclass
class Fleet:
    """Hosts that pass, but for those that are told to fail; what was done to them stands in calls."""

    failing: Planted = field(default_factory=dict[tuple[Phase, str], Ended | type[BaseException]])
    calls: list[tuple[Phase, str]] = field(default_factory=list[tuple[Phase, str]])
    canaries: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])

    def step(self, phase: Phase) -> Step:
        def do(names: Sequence[str], canary: Mapping[str, float]) -> Mapping[str, Ended]:
            self.calls.append((phase, "".join(names)))
            self.canaries.append(canary)
            return {name: self._ended(phase, name) for name in names}

        return do

    def _ended(self, phase: Phase, name: str) -> Ended:
        told = self.failing.get((phase, name), Ended(tokens_per_s={"8": 100.0} if phase == "baseline" else {}))
        if isinstance(told, type):
            raise told
        return told

    def run(self, record: Record, *phases: Phase) -> Result:
        kept: list[Record] = []
        result = run(record, {phase: self.step(phase) for phase in phases or ("playbooks", "check")}, kept.append)
        if kept:
            assert kept[-1] == result.record  # whatever ends the program, this is known
        return result


def start(serial: str = "2", max_fail: int = 1, names: Sequence[str] = NAMES) -> Record:
    wishes = Wishes(source="hosts.yml", serial=(serial,), max_fail=max_fail, name="vllm")
    return Record(wishes=wishes, started="2026-11-29T00:00:00+00:00", hosts=dict.fromkeys(names, Host()))


def stages(record: Record) -> str:
    return " ".join(f"{name}:{host.stage}" for name, host in record.hosts.items())


def test_the_canary_goes_first_and_alone() -> None:
    fleet = Fleet()
    result = fleet.run(start())
    assert fleet.calls[:4] == [("playbooks", "a"), ("check", "a"), ("playbooks", "bc"), ("check", "bc")]
    assert (result.stopped, set(result.record.at("done"))) == ("", set(NAMES))
    assert result.record.canary == "a"


def test_it_stops_at_the_first_bad_batch_and_says_where_each_host_is() -> None:
    fleet = Fleet({("check", "c"): Ended(failure="Docker does not answer\nSee: systemctl status docker")})
    result = fleet.run(start())
    assert stages(result.record) == "a:done b:done c:failed d:waiting e:waiting f:waiting g:waiting"
    assert result.stopped == "1 failed, and --max-fail is 1."
    valid(json.loads(report.json(result)), "provision-1")
    told = report.text(result)
    assert told.splitlines()[0] == "7 hosts · 2 done · 1 failed · 4 not tried"
    assert "✗ c  failed, by the check: Docker does not answer\n    See: systemctl status docker\n" in told
    assert "· d  not tried\n" in told
    assert "lpxdoctor provision -i hosts.yml --resume" in told


def test_what_was_changed_on_a_host_that_failed_is_told_and_counts_on() -> None:
    stopped = Fleet({("playbooks", "a"): Ended(failure="no", changed=3)}).run(start())
    assert "✗ a  failed, in the playbooks, 3 changes: no\n" in report.text(stopped)
    again = Fleet({("playbooks", "a"): Ended(changed=1)}).run(resumed(stopped.record, NAMES))
    assert "✓ a  done, 4 changes, canary\n" in report.text(again)


def test_a_canary_that_fails_stops_it_whatever_may_fail() -> None:
    fleet = Fleet({("playbooks", "a"): Ended(failure="no")})
    result = fleet.run(start(max_fail=5))
    assert fleet.calls == [("playbooks", "a")]
    assert result.stopped == "The canary a did not pass."


def test_some_may_fail_where_that_is_allowed() -> None:
    bad: Planted = {("check", name): Ended(failure="no") for name in "bdf"}
    assert stages(Fleet(dict(bad)).run(start(max_fail=2)).record).endswith("d:failed e:done f:waiting g:waiting")
    result = Fleet(dict(bad)).run(start(max_fail=4))
    assert set(result.record.at("done")) == set("aceg")
    assert result.stopped == "Not every host passed."


def test_what_is_resumed_is_only_what_is_left() -> None:
    stopped = Fleet({("check", "c"): Ended(failure="no")}).run(start()).record
    again = resumed(stopped, (*NAMES, "new"))
    assert planned(again) == (("c", "d"), ("e", "f"), ("g", "new"))
    fleet = Fleet()
    result = fleet.run(again)
    assert result.stopped == ""
    assert fleet.calls[0] == ("check", "ab")  # verified, not done again
    assert ("playbooks", "cd") in fleet.calls
    assert not any(phase == "playbooks" and set(names) & set("ab") for phase, names in fleet.calls)


def test_a_host_that_is_fit_no_more_stops_what_is_resumed() -> None:
    stopped = Fleet({("check", "c"): Ended(failure="no")}).run(start()).record
    fleet = Fleet({("check", "b"): Ended(failure="its disk is full")})
    result = fleet.run(resumed(stopped, NAMES))
    assert fleet.calls == [("check", "ab")]
    assert result.record.hosts["b"].because == "it was done before, and is fit no more: its disk is full"
    assert result.stopped == "1 failed, and --max-fail is 1."


def test_what_was_removed_from_the_inventory_is_left_alone() -> None:
    stopped = Fleet({("check", "c"): Ended(failure="no")}).run(start()).record
    again = resumed(stopped, tuple("bcd"))
    assert tuple(again.hosts) == tuple("bcd")
    assert again.canary == ""


@pytest.mark.parametrize("phase", ["playbooks", "check"])
def test_ctrl_c_leaves_a_clear_state(phase: Phase) -> None:
    result = Fleet({(phase, "c"): KeyboardInterrupt}).run(start())
    assert result.interrupted
    assert stages(result.record) == "a:done b:running c:running d:waiting e:waiting f:waiting g:waiting"
    told = report.document(result)
    assert (told.done, told.interrupted, told.not_tried, told.failed) == (1, 2, 4, 0)
    assert [row.phase for row in told.hosts if row.state == "interrupted"] == [phase, phase]
    assert planned(resumed(result.record, NAMES))[0] == ("b", "c")


def test_hosts_that_were_not_come_to_are_not_failed() -> None:
    phases: tuple[Phase, ...] = ("playbooks", "check", "deploy", "baseline")
    fleet = Fleet({("deploy", "b"): Ended(failure="no"), ("deploy", "c"): Ended(untried=True)})
    result = fleet.run(start(), *phases)
    assert stages(result.record).startswith("a:done b:failed c:waiting d:waiting")
    assert result.record.hosts["c"].because == "another host failed before deploy came to it"


def test_the_others_are_compared_with_the_canary() -> None:
    fleet = Fleet()
    result = fleet.run(start(), "playbooks", "check", "deploy", "baseline")
    assert fleet.canaries[:4] == [{}] * 4
    assert set(map(str, fleet.canaries[4:])) == {str({"8": 100.0})}
    assert "✓ a  done, nothing to change, 100 tokens/s at 8, canary\n" in report.text(result)


def test_a_step_that_leaves_a_host_out_has_not_passed_it() -> None:
    def silent(names: Sequence[str], canary: Mapping[str, float]) -> Mapping[str, Ended]:
        return {}

    result = run(start(), {"playbooks": silent, "check": silent}, lambda _: None)
    assert result.record.hosts["a"].because == "playbooks said nothing of it"


def test_a_record_is_kept_for_each_inventory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    stopped = Fleet({("check", "c"): Ended(failure="no")}).run(start()).record
    records.save(stopped)
    assert records.load("hosts.yml") == stopped
    with pytest.raises(UsageError, match="Start one without --resume"):
        records.load("others.yml")
    with (
        records.locked("hosts.yml"),
        pytest.raises(UsageError, match=rf"works on hosts.yml: process {os.getpid()} of \w+, since 20\d\d-"),
        records.locked("hosts.yml"),
    ):
        pass
    records.file_of("hosts.yml").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        records.load("hosts.yml")
