"""What commands that measure share: lists of concurrencies as options take them, and a flag for the first Ctrl-C."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

MOST_AT_ONCE = 4096


def numbers(value: str) -> tuple[int, ...] | None:
    """Return the numbers of a list such as 1,8,32; None where one of them is none or out of range."""
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MOST_AT_ONCE for part in parts):
        return None
    return tuple(int(part) for part in parts)


def concurrencies(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Return the concurrencies of an option's value, None where it is not given; BadParameter where it is no list."""
    found = None if value is None else numbers(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r} is not a list of numbers from 1 to {MOST_AT_ONCE}, like 1,8,32.")
    return found


@contextmanager
def stop_flag(*signals: signal.Signals, said: str = "") -> Generator[list[int]]:
    """Yield a list that the first of these signals fills, so that a run ends in order; the second one acts as usual.

    said is what standard error gets at the first one.
    """
    stopped: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        if said:
            os.write(sys.stderr.fileno(), said.encode())  # print may be under way
        for one, handler in before.items():
            signal.signal(one, handler)

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
