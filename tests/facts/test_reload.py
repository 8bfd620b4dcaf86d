"""What a trial of a daemon-reload says: kept, lost, not tried, not asked."""

from typing import Any

import pytest

from lpxdoctor.evidence import Answer, Evidence, Unreadable
from lpxdoctor.facts.reload import RELOAD, Reload


def told(**answer: Any) -> Reload:
    whole = {"server": "unix:/x", "skipped": "", "failure": "", "paths": [], **answer}
    return Reload.parse(Evidence(host="h", answers={RELOAD.key: Answer(whole)}))


def path(name: str, before: dict[str, int], after: dict[str, int], error: str = "") -> dict[str, Any]:
    return {"path": name, "error": error, "before": before, "after": after, "container": ""}


def test_a_node_that_is_refused_afterwards_is_lost() -> None:
    facts = told(
        paths=[path("--gpus", {"/dev/nvidia0": 0, "/dev/nvidiactl": 0}, {"/dev/nvidia0": 1, "/dev/nvidiactl": 0})]
    )
    (survival,) = facts.paths
    assert survival.lost == ("/dev/nvidia0",)
    assert survival.label == "--gpus"


def test_what_could_not_be_opened_before_is_not_lost() -> None:
    assert told(paths=[path("CDI", {"/dev/nvidia0": 1}, {"/dev/nvidia0": 1})]).paths[0].lost == ()


def test_a_node_that_went_is_lost() -> None:
    assert told(paths=[path("CDI", {"/dev/nvidia0": 0}, {})]).paths[0].lost == ("/dev/nvidia0",)


def test_why_it_was_not_tried() -> None:
    assert told(skipped="a daemon-reload needs root").skipped == "a daemon-reload needs root"
    assert told(failure="no answer in time").skipped == "no answer in time"


def test_not_asked_is_not_asked() -> None:
    assert Reload.parse(Evidence(host="h", answers={})).asked is False


def test_an_answer_that_is_none_is_unreadable() -> None:
    facts = Reload.parse(Evidence(host="h", answers={RELOAD.key: Answer(failure="timeout", reason="late")}))
    with pytest.raises(Unreadable, match="late"):
        assert facts.paths
