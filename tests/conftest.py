"""Every test's surroundings: fixtures of real parts for all, and the mark that keeps them out of the fast suite."""

from pathlib import Path

import pytest

pytest_plugins = ("tests.lab.fixtures",)

LAB = Path(__file__).resolve().parent / "lab"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update, which rewrites the reports of recorded hosts: read the difference before it is committed."""
    parser.addoption("--update", action="store_true", help="rewrite the golden reports in tests/hosts")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses real parts: what lives in tests/lab, and what asks for the engine through any fixture."""
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        if item.path.is_relative_to(LAB) or "docker_engine" in fixtures or "lab_registry" in fixtures:
            item.add_marker(pytest.mark.lab)
