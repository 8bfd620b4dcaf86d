"""Load check files by path, the bundled ones and then the site's, and return the checks in the order of the chain."""

import difflib
import importlib.util
import os
import stat
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from lpxdoctor import bundled
from lpxdoctor.check import CHAIN, Check
from lpxdoctor.errors import UsageError

_NEAR = 4
SITE_CHECKS = Path("/etc/lpxdoctor/checks.d")


def load(site: Path | None = SITE_CHECKS) -> tuple[Check[...], ...]:
    """Return every check; site=None leaves the site's out.

    Raises UsageError for a site's file that others can write, that cannot be imported, or whose ids or edges clash.
    """
    # A word's checks may fill several files: driver.py, driver_versions.py.
    paths = sorted(bundled.CHECKS.glob("*.py"), key=lambda path: (CHAIN.index(path.stem.partition("_")[0]), path))
    if site is not None and site.is_dir():
        _refuse_if_others_write(site)
        for path in sorted(site.glob("*.py")):
            _refuse_if_others_write(path)
            paths.append(path)
    return ordered(check for path in paths for check in load_file(path))


def chosen(checks: tuple[Check[...], ...], ids: Iterable[str]) -> tuple[Check[...], ...]:
    """Return the named checks and all that they follow from; all checks where none is named.

    Raises UsageError for an id that no check has.
    """
    by_id = {check.id: check for check in checks}
    queue, wanted = list(ids), set[str]()
    if not queue:
        return checks
    while queue:
        id_ = queue.pop()
        if id_ not in by_id:
            raise no_such(id_, by_id)
        if id_ not in wanted:
            wanted.add(id_)
            queue.extend(by_id[id_].after)
    return tuple(check for check in checks if check.id in wanted)


def no_such(id_: str, ids: Iterable[str]) -> UsageError:
    """Return the error for an id that nothing has, with those of ids that may be meant."""
    known = tuple(ids)
    near = [each for each in known if id_.lower() in each] or difflib.get_close_matches(id_, known)
    hint = (
        "\n  ".join(("Did you mean", *near[:_NEAR]))
        if near
        else "All ids: lpxdoctor checks. A host is given with -i, a file with --from."
    )
    return UsageError(f"No check has the id {id_}.\n{hint}")


def load_file(path: Path) -> tuple[Check[...], ...]:
    """Return the checks of one file, in the order in which they stand there."""
    spec = importlib.util.spec_from_file_location(f"lpxdoctor_checks_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a site's file may do anything; the bundled ones are tested
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return tuple(value for value in vars(module).values() if isinstance(value, Check))


def ordered(checks: Iterable[Check[...]]) -> tuple[Check[...], ...]:
    """Return checks so that each comes behind what it follows from, and otherwise in the order given."""
    by_id = _by_id(checks)
    try:
        TopologicalSorter({check.id: check.after for check in by_id.values()}).prepare()
    except CycleError as error:
        raise UsageError(f"Checks follow from each other in a circle: {' -> '.join(error.args[1])}") from None
    # graphlib's own order is by depth; the chain's order must stay, so each check pulls what it follows from before it.
    placed: dict[str, Check[...]] = {}

    def place(check: Check[...]) -> None:
        if check.id not in placed:
            for earlier in check.after:
                place(by_id[earlier])
            placed[check.id] = check

    for check in by_id.values():
        place(check)
    return tuple(placed.values())


def _by_id(checks: Iterable[Check[...]]) -> dict[str, Check[...]]:
    """Return checks by their ids, or raise UsageError where two share one or an edge leads nowhere."""
    by_id: dict[str, Check[...]] = {}
    for check in checks:
        if check.id in by_id:
            raise UsageError(f"Two checks have the id {check.id}; to replace a bundled one, disable it in policy.toml")
        by_id[check.id] = check
    for check in by_id.values():
        for earlier in check.after:
            if earlier not in by_id:
                raise UsageError(f"{check.id} comes after {earlier}, and no check has that id")
    return by_id


def _refuse_if_others_write(path: Path) -> None:
    """Raise UsageError unless only root or the caller can change a file: what lies there is run."""
    info = path.stat()
    if info.st_uid not in (0, os.getuid()) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{path} could have been written by others than root and you, so it is not run. "
            f"Type: chown root {path} && chmod go-w {path}"
        )
