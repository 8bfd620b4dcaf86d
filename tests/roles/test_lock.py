"""The role lock: one run at a time on a host, and no lock that stays for ever."""

import os
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.roles.loading import ROLES, loaded

LOCK = loaded("lock", "host_lock")


def asked(path: Path, run: str, *, node: str = "here", state: str = "held", dead: str = "", limit_s: int = 60) -> Any:
    holder = {"run": run, "node": node, "pid": 1, "host": "ctl", "user": "op"}
    given = {"path": str(path), "state": state, "holder": holder, "limit_s": limit_s}
    other = LOCK.take({**given, "dead": {"run": dead} if dead else None})
    return other and other["run"]


def test_one_run_has_the_lock_until_it_leaves_it(tmp_path: Path) -> None:
    file = tmp_path / "run" / "lock.json"
    assert asked(file, "one") is None
    assert asked(file, "one") is None  # the next playbook of the same run
    assert asked(file, "two") == "one"
    assert asked(file, "two", state="free") is None  # which leaves the other's alone
    assert asked(file, "two") == "one"
    assert asked(file, "one", state="free") is None
    assert asked(file, "two") is None


def test_a_dead_runs_lock_is_taken_over_and_a_strangers_expires(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    assert asked(file, "one", node="elsewhere") is None
    assert asked(file, "two", dead="other") == "one"
    assert asked(file, "two", dead="one") is None
    assert asked(file, "three", node="elsewhere", limit_s=-1) is None
    assert asked(file, "four", node="elsewhere", limit_s=-1) == "three"  # of one's own node only its end counts
    file.write_text('{"run": "th')  # cut off by a full disk
    assert asked(file, "five") is None


def test_an_execution_environments_user_without_a_name_has_a_lock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_000_660_000)  # as OpenShift gives them out
    plugin = runpy.run_path(str(ROLES / "lock/action_plugins/host_lock.py"))
    assert plugin["_me"]()["user"] == "user id 1000660000"
