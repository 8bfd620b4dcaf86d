"""Plans: root causes only, one run for each playbook, in order, and what a reboot or GPU work means for them."""

from pathlib import Path

import pytest

from lpxdoctor import catalog, policy
from lpxdoctor.evaluate import evaluate
from lpxdoctor.evidence import from_json
from lpxdoctor.fix import catalogue
from lpxdoctor.fix.plan import ByHand, Plan, Step, plan
from lpxdoctor.fix.work import GpuWork, gpu_work
from tests.fix.building import CATALOGUE, judged, planned
from tests.lab.faults import POLICY


def steps(made: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(step.playbook, step.ids) for step in made.steps]


def test_what_follows_from_a_cause_is_not_planned() -> None:
    assert steps(planned("boot.a", "driver.a", "container.a")) == [("boot", ("boot.a",))]


def test_one_run_for_each_playbook_in_the_order_of_the_chain() -> None:
    made = planned("driver.a", "boot.a", "boot.b")
    assert steps(made) == [("boot", ("boot.a", "boot.b"))]
    assert made.steps[0] == Step("boot", ("boot.a", "boot.b"), ("Write a", "Write both"), False, ("boot.a", "boot.b"))
    assert steps(planned("container.note", "driver.a", ids=("container.note", "driver.a"))) == [
        ("driver", ("driver.a",)),
        ("container", ("container.note",)),
    ]


def test_a_note_is_put_right_only_when_it_is_named() -> None:
    assert planned("container.note").ids == ()
    assert planned("container.note", ids=("container.note",)).ids == ("container.note",)


def test_what_is_asked_for_and_blocked_has_its_cause_put_right() -> None:
    made = planned("boot.a", "driver.a", "driver.c", ids=("driver.c",))
    assert made.ids == ("boot.a",)
    assert made.waiting == (("driver.c", "boot.a"),)


def test_only_what_is_asked_for_is_planned() -> None:
    assert planned("boot.b", "driver.a", ids=("boot.b",)).ids == ("boot.b",)
    assert planned("boot.b", ids=("driver.a",)).ids == ()


def test_what_no_playbook_puts_right_is_named_with_its_own_commands() -> None:
    made = planned("driver.c", "container.untagged")
    assert made.steps == ()
    assert made.by_hand == (
        ByHand("driver.c", "Something is wrong", ("mend driver.c",)),
        ByHand("container.untagged", "Something is wrong", ("mend container.untagged",)),
    )


def test_what_follows_from_the_next_boot_comes_behind_it() -> None:
    made = planned("boot.b", "driver.b")
    assert steps(made) == [("boot", ("boot.b",))]
    assert [step.ids for step in made.later] == [("driver.b",)]
    assert made.reboots
    assert made.interrupts
    assert made.put_off().steps == ()
    assert made.put_off().ids == made.ids


def test_a_reboot_is_said_to_interrupt_and_so_is_a_task_or_its_handler() -> None:
    assert planned("driver.a").interrupts
    assert not planned("driver.a").reboots
    assert planned("boot.a").interrupts
    assert not planned("container.note", ids=("container.note",)).interrupts


def test_what_could_not_be_judged_is_said() -> None:
    made = plan(judged(unreadable=True), CATALOGUE, (), GpuWork())
    assert made.ids == ()
    assert made.unjudged == "8 of 8 checks"
    assert plan(judged(unreadable=True), CATALOGUE, ("boot.a",), GpuWork()).unjudged == "boot.a (file:/state: denied)"


LAB = "tests/fix/hosts/nouveau.json"
EXPECTED = {
    LAB: (
        ("boot", ("boot.initramfs-allows-nouveau", "boot.nouveau-not-blocked")),
        ("driver", ("boot.module-missing", "boot.next-kernel-without-module", "driver.packages-not-held")),
        ("container", ("container.toolkit-missing",)),
    ),
    "tests/hosts/h200-cdi/evidence.json": (),
    "tests/hosts/h200-cdi-serving/evidence.json": (),
    "tests/hosts/no-gpu/evidence.json": (),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded_hosts_have_their_plans(name: str, tmp_path: Path) -> None:
    evidence = from_json(Path(name).read_text(encoding="utf-8"))
    (tmp_path / "policy.toml").write_text(POLICY if name == LAB else "")
    judgement = evaluate(catalog.load(None), evidence, policy.load(tmp_path / "policy.toml"))
    made = plan(judgement, catalogue.load(), (), gpu_work(evidence))
    assert tuple(steps(made)) == EXPECTED[name]
    # Each finding alone is the matter of one playbook.
    for id_ in made.ids:
        assert [step.ids for step in plan(judgement, catalogue.load(), (id_,), GpuWork()).steps] == [(id_,)]


def test_engines_and_processes_on_gpus_are_seen() -> None:
    serving = from_json(Path("tests/hosts/h200-cdi-serving/evidence.json").read_text(encoding="utf-8"))
    idle = from_json(Path("tests/hosts/h200-cdi/evidence.json").read_text(encoding="utf-8"))
    lab = from_json(Path(LAB).read_text(encoding="utf-8"))
    assert any("(engine)" in name for name in gpu_work(serving).running)
    assert gpu_work(idle) == GpuWork()
    assert gpu_work(lab) == GpuWork()
