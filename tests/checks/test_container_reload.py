"""A GPU lost at a daemon-reload is told with the path that keeps it; kept, not asked and not tried are silent."""

from dataclasses import replace

import pytest

from lpxdoctor import catalog
from lpxdoctor.check import Finding, NotApplicable
from lpxdoctor.facts.reload import Reload, Survival

KEPT = Survival("CDI", "", ("/dev/nvidia0", "/dev/nvidiactl"), ())
LOST = Survival("--gpus", "", ("/dev/nvidia0", "/dev/nvidiactl"), ("/dev/nvidia0", "/dev/nvidiactl"))
REFUSED = Survival("--runtime=nvidia", "unknown or invalid runtime name: nvidia", (), ())
TRIED = Reload(asked=True, skipped="", paths=(KEPT,))


def found(facts: Reload) -> list[Finding]:
    (check,) = [check for check in catalog.load(None) if check.id == "container.reload-lost-gpu"]
    return list(check(facts))


def test_a_path_that_loses_the_gpu_is_told_with_one_that_keeps_it() -> None:
    (finding,) = found(replace(TRIED, paths=(KEPT, LOST, REFUSED)))
    assert finding.message == "--gpus loses the GPU; use CDI"
    assert [seen.what for seen in finding.seen] == ["/dev/nvidia0", "/dev/nvidiactl", "CDI"]


def test_a_gpu_that_is_kept_is_silent() -> None:
    assert found(TRIED) == []
    assert found(replace(TRIED, paths=(REFUSED,))) == []


def test_it_says_how_to_ask_and_why_it_was_not_tried() -> None:
    with pytest.raises(NotApplicable, match=r"lpxdoctor check container\.reload-lost-gpu"):
        found(replace(TRIED, asked=False))
    with pytest.raises(NotApplicable, match="needs root"):
        found(replace(TRIED, skipped="a daemon-reload needs root"))
