"""Every test's surroundings: fixtures of real parts, the mark of what needs them, and who runs beside whom."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

pytest_plugins = ("tests.lab.fixtures",)

# Other work on this machine is no slowness of ours.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

LAB = Path(__file__).resolve().parent / "lab"
# What serves with a real engine or measures times: one after the other, and before all else where cores are few.
ENGINE = "engine"
# Groups that take longest come first, so that nobody waits for one of them at the end.
LONGEST = (
    ENGINE,
    "lab/test_role_driver",
    "lab/test_debian_13",
    "lab/test_site",
    "lab/test_role_container",
    "lab/test_provision",
    "lab/test_role_boot",
    "lab/test_faults_boot",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update, which rewrites the reports of recorded hosts: read the difference before it is committed."""
    parser.addoption("--update", action="store_true", help="rewrite the golden reports in tests/hosts")


@pytest.hookimpl(tryfirst=True)  # before -m selects, and before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses real parts, put each test into the group of those that share something, and order the groups."""
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        if item.path.is_relative_to(LAB) or "docker_engine" in fixtures or "lab_registry" in fixtures:
            item.add_marker(pytest.mark.lab)
        if item.get_closest_marker("xdist_group") is None:
            group = ENGINE if "cpu_image" in fixtures else f"{item.path.parent.name}/{item.path.stem}"
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_place)


class _Groups(LoadGroupScheduling):  # type: ignore[misc] # it tells no types
    """Groups in order, one at a time: xdist's own hands out the next one while two tests of the last are to run."""

    def _reschedule(self, node: WorkerController) -> None:
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    """Keep the groups of --dist loadgroup from queueing behind a long test while another worker is idle."""
    return _Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let others stand back for a test that measures; only root can take a step back and come forward again."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0 if _group(item) == ENGINE else 5)


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else ""


def _place(item: pytest.Item) -> tuple[int, bool, bool]:
    group = _group(item)
    rank = LONGEST.index(group) if group in LONGEST else len(LONGEST)
    return rank, item.get_closest_marker("lab") is None, item.get_closest_marker("slow") is None
