"""What runs beside a test ends with it, and its exception is that test's."""

from pathlib import Path

import pytest

from tests.beside import beside

TESTS = Path(__file__).parent
STARTS = "threading." + "Thread("


def fails(reason: str) -> None:
    raise OSError(reason)


def test_what_it_returned_is_there_when_the_block_has_ended() -> None:
    with beside(max, 1, 2) as found:
        pass
    assert found.result() == 2


def test_what_it_raised_is_raised_here() -> None:
    with pytest.raises(OSError, match="beside"), beside(fails, "beside"):
        pass


def test_what_the_block_raised_goes_first() -> None:
    with pytest.raises(ValueError, match="within"), beside(fails, "beside"):
        raise ValueError("within")


def test_no_test_starts_a_thread_otherwise() -> None:
    assert [str(file) for file in TESTS.rglob("*.py") if STARTS in file.read_text(encoding="utf-8")] == []
