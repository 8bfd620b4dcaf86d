"""Tests of faults do not wait as long as a run does before it tries a server again; a busy machine fails none."""

import pytest
from hypothesis import settings

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")


@pytest.fixture(autouse=True)
def short_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "hammered" not in request.node.name:
        monkeypatch.setattr("lpxdoctor.decode.retry._FIRST_PAUSE_S", 0.01)
        monkeypatch.setattr("lpxdoctor.decode.load._TICK_S", 0.02)
