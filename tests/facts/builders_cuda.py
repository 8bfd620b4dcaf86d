"""CUDA that works, and Fabric Managers, as values for tests to change."""

from dataclasses import replace
from typing import Any

from lpxdoctor.facts.cuda import CUDA, Cuda
from lpxdoctor.facts.fabric import Fabric, Unit
from tests.facts.given import H200, evidence

RUNNING = Unit("active", "running", "enabled", "success")


def tried(name: str = "cuda", **changes: Any) -> Cuda:
    """Return CUDA as it really answered on the H200 in one of the recorded cases."""
    return replace(Cuda.parse(evidence({CUDA: H200[name]})), **changes)


def fabric(**changes: Any) -> Fabric:
    """Return a Fabric Manager of the H200's driver that runs, with what the newest boards need."""
    return replace(Fabric(unit=RUNNING, version="580.159.04", subnet_manager=True, mad_module=True), **changes)
