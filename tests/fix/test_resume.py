"""A run of fix that was interrupted, or waits for a reboot, and what finishes it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lpxdoctor.fix import state, unit
from lpxdoctor.fix.look import Seen
from lpxdoctor.fix.outcome import HostResult, status
from lpxdoctor.fix.play import Job
from lpxdoctor.playbook import Canceled, State, TaskEvent
from tests.fix.planting import Planting, boot, carried_out, resumed


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
