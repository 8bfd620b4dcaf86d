"""Logs: private, and not without end."""

from pathlib import Path

import pytest

from lpxdoctor import logs


def test_a_log_is_private_and_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(logs, "KEPT", 3)
    files = [logs.keep(f"run-{number}", f"text {number}") for number in range(5)]
    assert files[-1].read_text() == "text 4"
    assert files[-1].stat().st_mode & 0o777 == 0o600
    assert files[-1].parent.stat().st_mode & 0o777 == 0o700
    assert len(list(files[-1].parent.iterdir())) == 3
    assert files[-1].exists()
