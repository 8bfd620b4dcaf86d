"""A playbook `trial` of one test, run on this machine; its outcome, its processes and what it left behind."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from lpxdoctor import inventory, playbook
from lpxdoctor.inventory import Source
from lpxdoctor.playbook import TaskEvent

Write = Callable[[str], None]


def ignore(event: TaskEvent) -> None:
    pass


def run(
    on_event: Callable[[TaskEvent], None] = ignore, limit_s: float | None = None, *extra: Source
) -> playbook.Outcome:
    sources = [inventory.local(), *extra]
    return playbook.run("trial", sources, collections=Path("/nonexistent"), on_event=on_event, limit_s=limit_s)


def command(*argv: str) -> str:
    return f"    - ansible.builtin.command: {{argv: {json.dumps(argv)}}}\n"


def left_over(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("lpxdoctor-")]


def processes(marker: str) -> list[str]:
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if marker in " ".join(words):
            found.append(f"{file.parent.name}: {' '.join(words)}")
    return found


def there(marker: str, within_s: float = 60) -> bool:
    return _within(within_s, lambda: bool(processes(marker)))


def gone(marker: str, within_s: float = 60) -> bool:
    return _within(within_s, lambda: not processes(marker))


def _within(limit_s: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
