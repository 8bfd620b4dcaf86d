"""A fleet on disk, and the same work for many files in a few processes."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from lpxdoctor.errors import DoctorError, UsageError
from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.fleet import NoAnswer, recorded
from lpxdoctor.fleet.spread import spread

ROWS: dict[str, Evidence | NoAnswer] = {
    "gpu-1": Evidence("gpu-1", {"file:/x": Answer("y")}),
    "fe80::1%eth0/..": Evidence("fe80::1%eth0/..", {}),
    "gpu-2": NoAnswer("it is away", "Bring it back."),
}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    directory = recorded.prepare(str(tmp_path / "a/b"))
    for name, row in ROWS.items():
        file = recorded.write(directory, name, row)
        assert file.parent == directory
        assert file.stat().st_mode & 0o777 == 0o600
    assert dict(map(recorded.read, recorded.files([str(directory)]))) == ROWS
    with pytest.raises(UsageError, match="is not empty"):
        recorded.prepare(str(directory))
    with pytest.raises(UsageError, match="File exists"):
        recorded.write(directory, "gpu-1", ROWS["gpu-1"])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"schema": 2}', b'{"no_answer": {"reason": "x"}}'])
def test_a_damaged_file_is_a_host_without_an_answer(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gpu-1.json").write_bytes(content)
    name, row = recorded.read(tmp_path / "gpu-1.json")
    assert name == "gpu-1"
    assert isinstance(row, NoAnswer)
    assert "holds no evidence" in row.reason


def test_a_file_that_cannot_be_read_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "gpu-1.json").mkdir()
    name, row = recorded.read(tmp_path / "gpu-1.json")
    assert (name, isinstance(row, NoAnswer)) == ("gpu-1", True)


def test_hosts_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("gpu-1-spare", "gpu-1", "gpu-1.lab"):
        (tmp_path / f"{name}.json").touch()
    assert [file.stem for file in recorded.files([str(tmp_path)])] == ["gpu-1", "gpu-1-spare", "gpu-1.lab"]


def test_nothing_to_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no evidence"):
        recorded.files([str(tmp_path)])
    with pytest.raises(UsageError, match="There is no file"):
        recorded.files([str(tmp_path / "none.json")])
    with pytest.raises(UsageError, match="Not a directory"):
        recorded.prepare("/dev/null/x")


@pytest.mark.parametrize("processes", [1, 3])
def test_each_item_comes_with_its_result(processes: int) -> None:
    items = list(range(100))
    done = dict(spread(items, lambda item: json.dumps([item, os.getpid()]) + "\n" * 3, processes))
    assert sorted(done) == items
    assert all(json.loads(done[item])[0] == item for item in items)
    assert len({json.loads(result)[1] for result in done.values()}) == processes


def test_a_process_that_dies_is_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    def work(item: int) -> str:
        if item == 7:
            os._exit(1)
        return ""

    with pytest.raises(DoctorError, match="of 100 hosts were done"):
        list(spread(range(100), work, 2))


def test_work_that_is_given_up_leaves_no_process() -> None:
    before = children()
    rows = spread(range(100), str, 2)
    next(rows)
    assert len(children() - before) == 2
    rows.close()
    assert children() <= before  # other tests of this process may have left some


def children() -> set[int]:
    """Return the processes that this one has started and not waited for."""
    found: set[int] = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            if int(file.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(file.parent.name))
    return found
