"""What check and collect share: ask this host what the checks need, with a progress line on a terminal."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lpxdoctor import __version__, bundled
from lpxdoctor.collect import collect
from lpxdoctor.errors import UsageError
from lpxdoctor.evidence import Evidence, Probe, Program, from_json
from lpxdoctor.files import is_there, read_text, write_whole

FORKS = 20  # hosts asked at once


def ask(
    probes: Iterable[Probe],
    *,
    container_test: bool,
    limit_s: float,
    reload_test: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> Evidence:
    """Ask this host, and call meanwhile while it answers; each test that acts on it is run only where it is wanted."""
    unwanted = bundled.unwanted(container_test=container_test, reload_test=reload_test)
    wanted = [probe for probe in probes if not (isinstance(probe, Program) and probe.name in unwanted)]
    progress = sys.stderr.isatty()
    try:
        return collect(
            wanted,
            bundled.programs(),
            limit_s=limit_s,
            on_answer=show if progress else None,
            meanwhile=meanwhile,
            collector=f"lpxdoctor {__version__}",
        )
    finally:
        if progress:
            clear()


def show(key: str, answered: int, of: int) -> None:
    """Show on a terminal how far it is."""
    # A line rewritten in place: a progress bar of rich would need a thread, and collecting forks.
    columns = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{answered}/{of} {key}'[:columns].ljust(columns)}", end="", file=sys.stderr, flush=True)


def clear() -> None:
    """Take that away again."""
    print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", file=sys.stderr, flush=True)


def read_evidence(path: str) -> Evidence:
    """Return recorded evidence, from standard input for "-"; raises UsageError where the file holds none."""
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else read_text(path)
        if not text.strip():
            raise UsageError(f"{name} is empty. To make evidence: lpxdoctor collect -o FILE")
        return from_json(text)
    except ValueError as error:  # undecodable bytes on standard input, no JSON, no evidence
        raise UsageError(f"{name} holds no evidence as `lpxdoctor collect` writes it: {error}") from None


def is_fleet(sources: Sequence[str]) -> bool:
    """Tell whether what --from names is the evidence of many hosts."""
    return len(sources) > 1 or any(is_there(source) and Path(source).is_dir() for source in sources)


def write(path: str, text: str) -> None:
    """Write a report; UsageError where that fails."""
    try:
        write_whole(Path(path), text.encode(), mode=0o644)  # a result to pass on
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
