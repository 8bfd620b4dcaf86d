"""The lock's part on the control node: a run's own name in, a refusal that names a live run, or the lock, out."""

from __future__ import annotations

import getpass
import os
import socket
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

Holder = dict[str, Any]


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process was started, in ticks since boot; "" where there is none."""
    return (_read(f"/proc/{pid}/stat").rpartition(")")[2].split() + [""] * 20)[19]


def _node() -> str:
    """Return what pids of this control node are told from others' by: its boot and its namespace of pids."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{_read('/proc/sys/kernel/random/boot_id') or socket.gethostname()} {namespace}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an execution environment's user without a name
        return f"user id {os.getuid()}"


def _me() -> Holder:
    pid = os.getppid()  # a task is run in a fork of the run
    run = f"{_node()} {pid} {_started(pid)}"
    return {"run": run, "node": _node(), "pid": pid, "host": socket.gethostname(), "user": _user()}


def _is_dead(other: Holder) -> bool:
    """Tell whether another run is known to be no more; of one on another control node nobody knows."""
    return bool(other["node"] == _node() and other["run"] != f"{_node()} {other['pid']} {_started(other['pid'])}")


def _sentence(other: Holder, path: str) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other["since_s"]))
    who = f"process {other['pid']} of {other['user']} on {other['host']}"
    return (
        f"Another run is at work on this host: {who}, since {since}.\nWait until it has ended, then run this again. "
        f"Nothing was changed. Where that run is known to be dead, remove {path} on the host."
    )


class ActionModule(ActionBase):  # type: ignore[misc] # ansible is untyped
    """Runs the module of the same name with the run's name added."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result, failed where another run lives."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._ask(task_vars, None))
        other = result.get("other")
        if other and _is_dead(other):
            result.update(self._ask(task_vars, other))
            other = result.get("other")
        if other:
            result.update(failed=True, msg=_sentence(other, str(self._task.args["path"])))
        return result

    def _ask(self, task_vars: dict[str, Any] | None, dead: Holder | None) -> dict[str, Any]:
        arguments = {**self._task.args, "holder": _me(), "dead": dead}
        answer: dict[str, Any] = self._execute_module(
            module_name="host_lock", module_args=arguments, task_vars=task_vars
        )
        return answer
