"""Every test of tune keeps its runs and baselines for itself; what is simulated may be judged with less chance."""

from pathlib import Path

import pytest

from lpxdoctor.decode import compare


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare.compare, "__kwdefaults__", {"resamples": 500})
