"""The run as a whole, with real playbooks on this machine: what is removed, left, refused, and goes on after a boot."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lpxdoctor import bundled, catalog, fleet, inventory, policy
from lpxdoctor.check import Check, Finding, Severity, check
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import Evidence, Listing, from_json
from lpxdoctor.facts.fact import Fact, known
from lpxdoctor.fix import catalogue, run, state, unit
from lpxdoctor.fix.look import Looker, Seen
from lpxdoctor.fix.outcome import HostResult, status
from lpxdoctor.fix.play import Job
from lpxdoctor.fix.state import Wishes
from lpxdoctor.fleet import FleetHost, NoAnswer
from lpxdoctor.playbook import Canceled, State, TaskEvent

# Each fault is a file below the directory faults, whose name is the id; a playbook removes it, or does not.
TASKS = """
- name: Remove a
  ansible.builtin.file: {path: "{root}/faults/boot.a", state: absent}
  tags: [boot.a]
- name: Claim to remove b
  ansible.builtin.file: {path: "{root}/elsewhere", state: absent}
  tags: [boot.b]
- name: Note that c goes with the next boot
  ansible.builtin.copy: {content: c, dest: "{root}/next", mode: "0600"}
  tags: [boot.c, reboot]
- name: Break
  ansible.builtin.fail: {msg: "E: Could not get lock /var/lib/dpkg/lock-frontend"}
  when: "'{root}/faults/boot.d' is ansible.builtin.exists"
  tags: [boot.d]
- name: Remove what is to be seen of f
  ansible.builtin.file: {path: "{root}/faults/boot.f", state: absent}
  tags: [boot.f]
- name: Finish f
  ansible.builtin.copy: {content: f, dest: "{root}/finished", mode: "0600"}
  tags: [boot.f]
- name: Say what is told about GPU work
  ansible.builtin.copy: {content: "{{ gpu_work }}", dest: "{root}/told", mode: "0600"}
  tags: [always]
"""


@dataclass(frozen=True, kw_only=True)
class Faults(Fact):
    """What is wrong: the names of the files."""

    there: frozenset[str]
    where: ClassVar[Listing]

    @classmethod
    def parse(cls, evidence: Evidence) -> "Faults":
        return cls(there=known(lambda: frozenset(path.rpartition("/")[2] for path in evidence.found(cls.where))))


def making(id_: str, after: tuple[str, ...] = ()) -> Check[Any]:
    @check(id_, Severity.FAIL, layer="driver", after=after, fix="boot")
    def made(faults: Faults) -> Iterator[Finding]:
        """Something is wrong.

        Why: because.
        Fix: mend it.
        """
        if id_ in faults.there:
            yield Finding(f"there is {id_}")

    return made


CHECKS = catalog.ordered((*(making(f"boot.{letter}") for letter in "abcdf"), making("boot.e", after=("boot.a",))))
Planting = Callable[..., Job]


def ignore(event: TaskEvent) -> None:
    pass


def boot(name: str) -> property:
    """Return what has every look see that boot."""
    return property(lambda _: name)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planting:
    """Return what plants faults and returns the job of a run."""
    playbooks = tmp_path / "playbooks"
    (playbooks / "roles/boot/tasks").mkdir(parents=True)
    (playbooks / "ansible.cfg").write_text((bundled.PLAYBOOKS / "ansible.cfg").read_text())
    (playbooks / "boot.yml").write_text("- hosts: all\n  gather_facts: false\n  roles: [boot]\n")
    (playbooks / "roles/boot/tasks/main.yml").write_text(TASKS.replace("{root}", str(tmp_path)))
    (tmp_path / "faults").mkdir()
    monkeypatch.setattr(bundled, "PLAYBOOKS", playbooks)
    monkeypatch.setattr("lpxdoctor.galaxy.ensure", lambda: tmp_path / "collections")  # these playbooks need none
    monkeypatch.setattr(Faults, "where", Listing(f"{tmp_path}/faults/*"), raising=False)
    monkeypatch.setattr(Faults, "probes", (Faults.where,))
    monkeypatch.setattr("lpxdoctor.fix.work.PROBES", ())  # what works on this machine's GPUs is no matter here
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def faults(*ids: str, on_event: Callable[[TaskEvent], None] = ignore, **wishes: Any) -> Job:
        for id_ in ids:
            (tmp_path / "faults" / id_).touch()
        return Job(
            wishes=Wishes(container_test=False, **wishes),
            source=inventory.local(),
            looker=Looker(
                checks=CHECKS, judge=lambda seen: evaluate(CHECKS, seen, policy.load()), container_test=False
            ),
            catalogue=catalogue.load(playbooks),
            variables={},
            on_event=on_event,
        )

    return faults


def carried_out(job: Job) -> HostResult:
    (result,) = run.carried_out(job, fleet.hosts(job.source))
    return result


def resumed(job: Job) -> HostResult:
    (result,) = run.resumed(job, fleet.hosts(job.source))
    return result


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


@pytest.mark.slow
def test_ctrl_c_leaves_a_record_that_resume_finishes(plant: Planting) -> None:
    def interrupt(event: TaskEvent) -> None:
        if event.state is State.STARTED:
            raise Canceled

    with pytest.raises(Canceled):
        carried_out(plant("boot.a", on_event=interrupt))
    record = state.load("localhost")
    assert record
    assert (record.stage, record.running, record.applied) == ("running", "boot", ())
    result = resumed(plant())
    assert result.removed == ("boot.a",)
    assert state.hosts() == ()


@pytest.mark.slow
@pytest.mark.parametrize("again", [resumed, carried_out])
def test_a_playbook_that_was_cut_off_is_run_to_its_end_though_its_finding_is_gone(
    plant: Planting, tmp_path: Path, again: Callable[[Job], HostResult]
) -> None:
    def interrupt(event: TaskEvent) -> None:
        if event.state is State.STARTED and event.task.endswith("Finish f"):
            raise Canceled

    with pytest.raises(Canceled):
        carried_out(plant("boot.f", on_event=interrupt))
    (tmp_path / "finished").unlink(missing_ok=True)  # it was about to be written
    assert not (tmp_path / "faults/boot.f").exists()
    assert again(plant()).removed == ("boot.f",)
    assert (tmp_path / "finished").exists()
    assert state.hosts() == ()


def test_a_record_that_cannot_be_read_stops_its_host_alone(plant: Planting) -> None:
    job = plant("boot.a")
    record = state.record_file("localhost")
    record.parent.mkdir(parents=True)
    record.write_text("{")
    assert "cannot be read" in carried_out(job).refused


@pytest.mark.slow
def test_what_counts_from_the_next_boot_on_waits_for_it_and_is_then_verified(
    plant: Planting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = carried_out(plant("boot.c"))
    assert result.waiting == ("boot.c",)
    assert result.left == ()
    assert status(result, ()) == 1
    again = resumed(plant())  # without a boot between
    assert again.waiting == ("boot.c",)
    assert status(again, ()) == 1
    monkeypatch.setattr(Seen, "booted", boot("next"))
    failed = resumed(plant())  # the boot did not bring it
    assert failed.waiting == ()
    assert failed.left == ("boot.c",)
    assert status(failed, ()) == 2
    assert state.hosts() == ()
    carried_out(plant("boot.c"))
    monkeypatch.setattr(Seen, "booted", boot("after it"))
    (tmp_path / "faults/boot.c").unlink()
    assert resumed(plant()).removed == ("boot.c",)
    assert state.hosts() == ()


def test_this_machine_goes_on_by_a_unit_after_a_reboot_that_was_allowed(
    plant: Planting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(unit, "UNITS", tmp_path)
    monkeypatch.setattr(unit, "_systemctl", lambda *words: asked.append(words))
    result = carried_out(plant("boot.c", reboot=True))
    assert result.rebooting
    assert status(result, ()) == 1
    assert asked == [("daemon-reload",), ("enable", "lpxdoctor-fix.service")]
    written = (tmp_path / "lpxdoctor-fix.service").read_text()
    assert f"ExecStart={sys.executable} -m lpxdoctor fix --resume\n" in written
    assert f'Environment="XDG_STATE_HOME={tmp_path}/state"\n' in written
    assert f"ExecStartPre=/bin/rm -f {tmp_path}/lpxdoctor-fix.service" in written


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
