"""The run as a whole, with real playbooks on this machine: what is removed, left and refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lpxdoctor import fleet, inventory
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.fix import run, state
from lpxdoctor.fix.look import Looker, Seen
from lpxdoctor.fix.outcome import HostResult, status
from lpxdoctor.fix.play import Job
from lpxdoctor.fleet import FleetHost, NoAnswer
from tests.fix.planting import Faults, Planting, carried_out


def test_a_plan_changes_nothing(plant: Planting, tmp_path: Path) -> None:
    job = plant("boot.a")
    (result,) = run.planned(job, fleet.hosts(job.source))
    assert result.plan
    assert result.plan.ids == ("boot.a",)
    assert (tmp_path / "faults/boot.a").exists()
    assert state.hosts() == ()


def test_what_is_removed_is_verified_and_what_it_had_blocked_is_seen(plant: Planting, tmp_path: Path) -> None:
    result = carried_out(plant("boot.a", "boot.e"))
    assert result.removed == ("boot.a",)
    assert result.left == ()
    assert [found.check.id for found in result.appeared] == ["boot.e"]
    assert (tmp_path / "told").read_text() == "refuse"
    assert state.hosts() == ()
    before, after = (from_json(file.read_text()) for file in result.evidence)
    assert before.found(Faults.where).keys() - after.found(Faults.where).keys() == {f"{tmp_path}/faults/boot.a"}
    assert status(result, ()) == 2  # boot.e is there
    assert status(result, ("boot.a",)) == 0


@pytest.mark.slow
def test_a_playbook_that_does_not_remove_its_finding_is_a_failure_with_both_evidences(plant: Planting) -> None:
    result = carried_out(plant("boot.a", "boot.b"))
    assert result.removed == ("boot.a",)
    assert result.left == ("boot.b",)
    assert status(result, ()) == 2
    assert [file.name for file in result.evidence] == ["localhost-before.json", "localhost-after.json"]


@pytest.mark.slow
def test_a_failed_task_is_told_with_what_to_do_and_a_second_run_finishes(plant: Planting) -> None:
    result = carried_out(plant("boot.d", "boot.a", ids=("boot.d",)))
    assert "another program installs packages there now" in result.failure
    assert "Run the same again" in result.failure
    assert status(result, ()) == 2
    record = state.load("localhost")
    assert record
    assert record.stage == "running"
    (Path(Faults.where.pattern).parent / "boot.d").unlink()
    assert carried_out(plant(ids=("boot.d",))).failure == ""
    assert state.hosts() == ()


@dataclass(frozen=True, kw_only=True)
class Otherwise(Looker):
    """Sees hosts as they are, but for some of the evidence."""

    change: Callable[[Evidence], Evidence]

    def look(self, hosts: Sequence[FleetHost]) -> Mapping[str, Seen | NoAnswer]:
        rows = Looker.look(self, hosts)
        assert all(isinstance(row, Seen) for row in rows.values())
        seen = {name: row for name, row in rows.items() if isinstance(row, Seen)}
        return {name: replace(row, evidence=self.change(row.evidence)) for name, row in seen.items()}


def otherwise(job: Job, change: Callable[[Evidence], Evidence]) -> Job:
    return replace(job, looker=Otherwise(**vars(job.looker), change=change))


@pytest.mark.slow
def test_gpu_work_is_not_touched_unless_that_is_said(plant: Planting, tmp_path: Path) -> None:
    serving = from_json(Path("tests/hosts/h200-cdi-serving/evidence.json").read_text(encoding="utf-8")).answers

    def treated(**wishes: Any) -> HostResult:
        job = plant("boot.a", **wishes)
        return carried_out(otherwise(job, lambda seen: replace(seen, answers={**seen.answers, **serving})))

    result = treated()
    assert "its GPUs are at work: " in result.refused
    assert "--drain 120" in result.refused
    assert "--force does no harm here" in result.refused
    assert status(result, ()) == 2
    assert (tmp_path / "faults/boot.a").exists()
    assert state.hosts() == ()
    assert treated(gpu_work="drain", drain_s=5).removed == ("boot.a",)
    assert (tmp_path / "told").read_text() == "drain"
    assert treated(gpu_work="force").removed == ("boot.a",)


def test_who_is_not_root_changes_nothing(plant: Planting, tmp_path: Path) -> None:
    result = carried_out(otherwise(plant("boot.a"), lambda seen: replace(seen, uid=1000)))
    assert "sudo lpxdoctor fix" in result.refused
    assert (tmp_path / "faults/boot.a").exists()


def test_a_second_run_on_a_host_is_refused(plant: Planting, tmp_path: Path) -> None:
    with state.locked("localhost"):
        result = carried_out(plant("boot.a"))
    assert "another lpxdoctor fix works on it" in result.refused
    assert status(result, ()) == 2
    assert (tmp_path / "faults/boot.a").exists()


def test_a_host_that_does_not_answer_keeps_no_other_from_its_end(plant: Planting) -> None:
    refusing = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_user": "nobody"}
    (here,) = fleet.hosts(inventory.local())
    named: inventory.Source = {"all": {"hosts": {"gpu-1": refusing, here.name: dict(here.variables)}}}
    job = replace(plant("boot.a"), source=named)
    silent, mended = run.carried_out(job, fleet.hosts(named))
    assert (silent.host, mended.host) == ("gpu-1", "localhost")
    assert "nothing listens for SSH" in silent.failure
    assert status(silent, ()) == 2
    assert (mended.failure, mended.removed) == ("", ("boot.a",))
