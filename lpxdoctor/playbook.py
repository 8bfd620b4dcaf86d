"""Run one playbook: hosts and variables in, a stream of task events and the outcome of every host out."""

import queue
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ansible_runner.config.runner import RunnerConfig
from ansible_runner.runner import Runner

from lpxdoctor import bundled, logs
from lpxdoctor.errors import SetupError
from lpxdoctor.inventory import Source, to_yaml
from lpxdoctor.termination import Stop, stoppable

POLL_S = 0.2
# All of this process's environment that a run gets: the rest would end in artifacts, and in processes on the hosts.
_PASSED_ON = re.compile(
    r"PATH|PYTHONPATH|HOME|USER|LOGNAME|SHELL|TMPDIR|LD_LIBRARY_PATH|SSH_AUTH_SOCK|KRB5CCNAME|XDG_RUNTIME_DIR"
    r"|https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|SSL_CERT_(FILE|DIR)"
    r"|AWX_\w+|RUNNER_\w+|ANSIBLE_(CALLBACK_PLUGINS|STDOUT_CALLBACK|RETRY_FILES_ENABLED)"  # the runner's own
)


class State(Enum):
    """What became of a task."""

    STARTED = "started"
    OK = "ok"
    CHANGED = "changed"
    SKIPPED = "skipped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


_STATES = {
    "playbook_on_task_start": State.STARTED,
    "runner_on_ok": State.OK,
    "runner_on_skipped": State.SKIPPED,
    "runner_on_failed": State.FAILED,
    "runner_on_unreachable": State.UNREACHABLE,
}


@dataclass(frozen=True, kw_only=True)
class TaskEvent:
    """A task that started (host is empty), or that ended on one host."""

    state: State
    task: str
    action: str  # the module, such as ansible.builtin.stat
    host: str
    result: Mapping[str, Any]  # as the module returned it; censored where the task says no_log

    @property
    def message(self) -> str:
        """Return what went wrong, in the module's words."""
        told = (self.result.get(key) for key in ("msg", "stderr", "module_stderr", "module_stdout"))
        return next((str(text).strip() for text in told if text), "no reason was given")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run that came to its end did; a host that is in neither was not tried."""

    changed: Mapping[str, int]  # host where all went well -> number of changed tasks
    failed: Mapping[str, tuple[TaskEvent, ...]]  # host that failed or was not reached -> what failed there, in order
    partly: Mapping[str, int]  # host that failed -> number of tasks that had changed something
    log: Path | None  # Ansible's own output; kept where something failed


class Canceled(KeyboardInterrupt):
    """The run was ended by Ctrl-C or SIGTERM; nothing of it runs any more, here or on a host."""


Handler = Callable[[TaskEvent], None]


@dataclass(kw_only=True)
class _Run:
    """What has been seen of a run."""

    stats: Mapping[str, Any] | None = None
    failures: dict[str, list[TaskEvent]] = field(default_factory=dict[str, list[TaskEvent]])
    crash: Exception | None = None
    exit_code: int | None = None


def run(
    name: str,
    inventory: Sequence[Source],
    *,
    collections: Path,
    on_event: Handler,
    check: bool = False,
    tags: Sequence[str] = (),
    hosts: Sequence[str] = (),
    limit_s: float | None = None,
) -> Outcome:
    """Run playbooks/NAME.yml on hosts of the inventory.

    Args:
        name: a playbook, without directory and suffix.
        inventory: the later source wins. Variables belong there: they are passed in a file with mode 0600, and
            never on a command line.
        collections: a directory with the collections that the playbook needs.
        on_event: called in this thread; the run does not wait for it, however slow it is.
        check: change nothing, and return differences.
        tags: run only tasks that have one of these tags, or the tag always; all tasks where none is given.
        hosts: names of the inventory to run on; all where none is given.
        limit_s: seconds until the run is ended.

    Raises:
        SetupError: Ansible could not run, named no host, was over the limit or ended without saying how.
        Canceled: after Ctrl-C or SIGTERM.
    """
    # Below /tmp and not the state directory: SSH's control sockets lie here, and their path has to be short.
    directory = Path(tempfile.mkdtemp(prefix="lpxdoctor-"))
    try:
        config = _configure(directory, name, _write(directory, inventory), collections, check=check)
        config.command += [
            *(("--tags", ",".join(tags)) if tags else ()),
            *(("--limit", ",".join(hosts)) if hosts else ()),
        ]
        with stoppable(limit_s) as stop, _ended_by(stop):
            seen = _stream(config, on_event, stop)
        return _judge(name, seen, stop, directory / "artifacts" / "run" / "stdout")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write(directory: Path, inventory: Sequence[Source]) -> list[str]:
    sources: list[str] = []
    for number, source in enumerate(inventory):
        if isinstance(source, Path):
            sources.append(str(source.resolve()))
            continue
        file = directory / f"inventory-{number}.yml"
        file.touch(mode=0o600)
        file.write_text(to_yaml(source), encoding="utf-8")
        sources.append(str(file))
    return sources


def _configure(directory: Path, name: str, sources: list[str], collections: Path, *, check: bool) -> Any:
    # The runner's classes and not its run(): that one writes variables and environment to files, or to argv.
    config = RunnerConfig(
        private_data_dir=str(directory),
        project_dir=str(bundled.PLAYBOOKS),
        playbook=f"{name}.yml",
        inventory=sources,
        cmdline="--check --diff" if check else None,
        ident="run",
        quiet=True,
        fact_cache_type="memory",
    )
    config.prepare()
    config.pexpect_timeout = POLL_S  # how long a request to stop may stay unseen
    config.env = _environment(config.env, directory, collections)
    # Through this interpreter: the script ansible-playbook need not be on PATH.
    config.command = [sys.executable, "-m", "ansible", "playbook", *config.command[1:]]
    return config


def _environment(prepared: Mapping[str, str], directory: Path, collections: Path) -> dict[str, str]:
    kept = {name: value for name, value in prepared.items() if _PASSED_ON.fullmatch(name)}
    return kept | {
        "LC_ALL": "C.UTF-8",  # messages are read, here and on the hosts
        "ANSIBLE_CONFIG": str(bundled.PLAYBOOKS / "ansible.cfg"),  # and none of the directory, home or /etc
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # the runner says False where nothing is said
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_ROLES_PATH": str(bundled.PLAYBOOKS / "roles"),
        "ANSIBLE_HOME": str(directory / "ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory / "cp"),
        "ANSIBLE_NOCOLOR": "True",
        "PYTHONDONTWRITEBYTECODE": "1",  # the playbooks may lie where nothing can be written
    }


def _stream(config: Any, on_event: Handler, stop: Stop) -> _Run:
    """Run in a thread that only queues what happens: an event handler that takes its time breaks the runner."""
    raw: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
    seen = _Run()

    def keep(event: Mapping[str, Any]) -> bool:
        raw.put(event)
        return False  # not to be written to a file

    def work() -> None:
        try:
            _, seen.exit_code = Runner(config, event_handler=keep, cancel_callback=stop.asked.is_set).run()
        except Exception as error:  # noqa: BLE001 - a crash of the runner is judged with the events that came
            seen.crash = error
        raw.put(None)

    thread = threading.Thread(target=work, name="ansible-runner")
    thread.start()
    try:
        for event in _arriving(raw, stop):
            _see(event, seen, on_event)
    except BaseException:  # of on_event: the run ends before its directory goes
        stop.asked.set()
        raise
    finally:
        thread.join()
        stop.sweep()
    return seen


def _arriving(raw: "queue.SimpleQueue[Mapping[str, Any] | None]", stop: Stop) -> Generator[Mapping[str, Any]]:
    while True:
        stop.watch()
        try:
            event = raw.get(timeout=POLL_S)
        except queue.Empty:
            continue
        if event is None:
            return
        yield event


@contextmanager
def _ended_by(stop: Stop) -> Generator[None]:
    """Have the runner end its process as stop does: its own way is one SIGKILL."""
    original = Runner.__dict__["handle_termination"]
    setattr(Runner, "handle_termination", lambda process, pidfile=None: stop.end(process))  # noqa: ARG005, B010
    try:
        yield
    finally:
        setattr(Runner, "handle_termination", original)  # noqa: B010


def _see(raw: Mapping[str, Any], seen: _Run, on_event: Handler) -> None:
    kind, data = str(raw["event"]), raw.get("event_data") or {}
    if kind == "playbook_on_stats":
        seen.stats = data
    if kind not in _STATES:
        return
    result: Mapping[str, Any] = data.get("res") or {}
    state = _STATES[kind]
    event = TaskEvent(
        state=State.CHANGED if state is State.OK and result.get("changed") else state,
        task=str(data.get("task", "")).rpartition(" : ")[2],
        action=str(data.get("task_action", "")),
        host=str(data.get("host", "")),
        result=result,
    )
    if event.state in {State.FAILED, State.UNREACHABLE}:
        seen.failures.setdefault(event.host, []).append(event)
    on_event(event)


def _judge(name: str, seen: _Run, stop: Stop, output: Path) -> Outcome:
    if stop.reason == "signal":
        raise Canceled
    if seen.stats is None:
        # Also where the exit code is 0: what was not counted is not known.
        said = "\n".join(_last_lines(output)) or f"{seen.crash or 'it said nothing'}"
        over = "it was over its time limit and was ended" if stop.reason == "limit" else f"exit code {seen.exit_code}"
        raise SetupError(f"Ansible's run of {name}.yml has no result ({over}):\n{said}\n{_kept(name, output)}")
    hosts = seen.stats.get("processed", {})
    if not hosts:
        raise SetupError("The inventory names no host, so nothing was done.\nName at least one with -i.")
    bad = {**seen.stats.get("failures", {}), **seen.stats.get("dark", {})}
    changed = seen.stats.get("changed", {})
    return Outcome(
        changed={host: int(changed.get(host, 0)) for host in hosts if host not in bad},
        failed={host: tuple(seen.failures[host]) for host in bad},
        partly={host: int(changed.get(host, 0)) for host in bad},
        log=_keep_log(name, output) if bad else None,
    )


def _last_lines(output: Path, count: int = 12) -> list[str]:
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.exists() else []
    return [line for line in lines if line.strip()][-count:]


def _kept(name: str, output: Path) -> str:
    log = _keep_log(name, output)
    return f"All that it said: {log}" if log else ""


def _keep_log(name: str, output: Path) -> Path | None:
    """Keep Ansible's output, in which secrets are censored; nothing else of the run's directory is kept."""
    return logs.keep(name, output.read_text(encoding="utf-8", errors="replace")) if output.exists() else None
