"""A fleet on disk: DIR/HOST.json for every host, with its evidence or why there is none; written and read again."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from lpxdoctor.errors import UsageError
from lpxdoctor.evidence import SCHEMA, Evidence, from_json, to_json
from lpxdoctor.files import is_there
from lpxdoctor.fleet.gather import Row
from lpxdoctor.fleet.refusals import NoAnswer

_AGAIN = "Collect it again: lpxdoctor collect -i INVENTORY -o DIR"


def prepare(path: str) -> Path:
    """Return a new or empty directory for a fleet's evidence; UsageError where it is neither.

    What an earlier run left there would be judged as hosts of this one.
    """
    directory = Path(path)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(
                f"{path} is not empty: what is in it would be judged as hosts of this fleet.\nGive -o a new directory."
            )
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    return directory


def write(directory: Path, name: str, row: Evidence | NoAnswer) -> Path:
    """Write one host's row, readable by its owner alone, and return the file; UsageError where that fails."""
    text = to_json(row) if isinstance(row, Evidence) else json.dumps(_refused(name, row)) + "\n"
    file = directory / f"{quote(name, safe='')}.json"
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:  # noqa: PTH123
            handle.write(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    return file


def _refused(name: str, row: NoAnswer) -> dict[str, object]:
    return {"schema": SCHEMA, "host": name, "no_answer": vars(row)}


def files(paths: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of a recorded fleet: those named, and every .json in the directories named.

    Raises:
        UsageError: there is no such file, or a directory has none.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        directory = is_there(str(path)) and path.is_dir()
        inside = sorted(path.glob("*.json"), key=lambda file: file.stem) if directory else [path]
        if not inside:
            raise UsageError(f"{path} has no evidence: a fleet's is HOST.json for every host, by lpxdoctor collect -i")
        found += inside
    missing = next((path for path in found if not is_there(str(path))), None)
    if missing:
        raise UsageError(f"There is no file {missing}.")
    return tuple(found)


def read(file: Path) -> Row:
    """Return the row in a file, under the host's name in it; what cannot be read is a host without an answer."""
    try:
        text = file.read_text(encoding="utf-8")
        try:
            evidence = from_json(text)
        except ValueError:
            refused = _no_answer(text)
            if refused is None:
                raise
            return refused
    except OSError as error:
        return file.stem, NoAnswer(f"{file} cannot be read: {error.strerror}", _AGAIN)
    except ValueError as error:  # undecodable bytes, no JSON, no evidence
        return file.stem, NoAnswer(f"{file} holds no evidence: {error}", _AGAIN)
    return evidence.host or file.stem, evidence


def _no_answer(text: str) -> Row | None:
    data = json.loads(text)
    told = data.get("no_answer") if isinstance(data, dict) else None
    if not isinstance(told, dict) or not {"reason", "do"} <= set(told):
        return None
    return str(data.get("host", "")), NoAnswer(str(told["reason"]), str(told["do"]))
