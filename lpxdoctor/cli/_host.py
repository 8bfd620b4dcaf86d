"""What check and collect share: ask this host what the checks need, with a progress line on a terminal."""

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from lpxdoctor import __version__, bundled
from lpxdoctor.collect import collect
from lpxdoctor.evidence import Evidence, Probe, Program, from_json

# The proof starts containers and the other makes systemd reload too; everything else only reads.
CONTAINER_TEST, RELOAD_TEST = "passthrough", "reload"


def ask(
    probes: Iterable[Probe],
    *,
    container_test: bool,
    limit_s: float,
    reload_test: bool = False,
    meanwhile: Callable[[], None] | None = None,
) -> Evidence:
    """Ask this host, and call meanwhile while it answers; each test that acts on it is run only where it is wanted."""
    unwanted = {name for name, wanted in ((CONTAINER_TEST, container_test), (RELOAD_TEST, reload_test)) if not wanted}
    wanted = [probe for probe in probes if not (isinstance(probe, Program) and probe.name in unwanted)]
    programs = {
        **{path.stem: path for path in bundled.PROGRAMS.glob("[!_]*.py")},
        **{path.stem: path for path in (bundled.IMAGES / "probe").glob("*.py")},
    }
    progress = sys.stderr.isatty()
    try:
        return collect(
            wanted,
            programs,
            limit_s=limit_s,
            on_answer=_show if progress else None,
            meanwhile=meanwhile,
            collector=f"lpxdoctor {__version__}",
        )
    finally:
        if progress:
            _clear()


def _show(key: str, answered: int, of: int) -> None:
    # A line rewritten in place: a progress bar of rich would need a thread, and collecting forks.
    columns = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{answered}/{of} {key}'[:columns].ljust(columns)}", end="", file=sys.stderr, flush=True)


def _clear() -> None:
    print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", file=sys.stderr, flush=True)


def read_evidence(path: str) -> Evidence:
    """Return recorded evidence, from standard input for "-"; raises UsageError where the file holds none."""
    from lpxdoctor.errors import UsageError  # noqa: PLC0415

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        return from_json(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # undecodable bytes, no JSON, no evidence
        raise UsageError(f"{path} holds no evidence as `lpxdoctor collect` writes it: {error}") from None
