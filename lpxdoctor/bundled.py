"""Where checks/, playbooks/ and images/ are: beside the package in a checkout, below it in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_WHEEL = _PACKAGE / "_bundled"
_ROOT = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent

CHECKS = _ROOT / "checks"
PLAYBOOKS = _ROOT / "playbooks"
IMAGES = _ROOT / "images"
PROGRAMS = _PACKAGE / "programs"
KNOWLEDGE = _PACKAGE / "knowledge"

# What acts on a host: the proof starts containers, the other makes systemd reload too. All else only reads.
CONTAINER_TEST, RELOAD_TEST = "passthrough", "reload"


def programs() -> dict[str, Path]:
    """Return the programs that probes run on a host: name -> file."""
    files = (*PROGRAMS.glob("[!_]*.py"), *(IMAGES / "probe").glob("*.py"))
    return {path.stem: path for path in files}


def unwanted(*, container_test: bool, reload_test: bool) -> frozenset[str]:
    """Return the programs that are not to be run: what acts on a host is run only where it is wanted."""
    return frozenset(
        name for name, wanted in ((CONTAINER_TEST, container_test), (RELOAD_TEST, reload_test)) if not wanted
    )
