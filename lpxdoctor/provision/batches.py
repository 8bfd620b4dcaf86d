"""In which order hosts are taken: those that wait and a list of sizes in, the canary and the batches after it out."""

import re
from collections.abc import Sequence
from itertools import chain, repeat

from lpxdoctor.errors import UsageError

_SIZE = re.compile(r"(\d+)(%?)")


def parse(text: str) -> tuple[str, ...]:
    """Return the sizes of batches in a list such as 1,10%,50%, as Ansible's serial has them; the last one repeats.

    Raises:
        UsageError: one of them is neither a number from 1 nor a percentage from 1 to 100.
    """
    sizes = tuple(part.strip() for part in text.split(","))
    for size in sizes:
        match = _SIZE.fullmatch(size)
        number = int(match[1]) if match else 0
        if match is None or number < 1 or (match[2] and number > 100):
            raise UsageError(
                f"--serial {text}: {size!r} is no size of a batch.\nWrite numbers or percentages: 5, 10% or 1,10%,50%."
            )
    return sizes


def batches(waiting: Sequence[str], serial: Sequence[str], total: int, *, canary: bool) -> tuple[tuple[str, ...], ...]:
    """Return the hosts in their batches, nothing left out.

    Args:
        waiting: hosts, in their order.
        serial: as parse returns it.
        total: of how many hosts a percentage is.
        canary: whether the first one goes alone.
    """
    rest = list(waiting)
    made: list[tuple[str, ...]] = []
    for size in chain((1,) if canary else (), (_hosts(one, total) for one in chain(serial, repeat(serial[-1])))):
        if not rest:
            break
        made.append(tuple(rest[:size]))
        rest = rest[size:]
    return tuple(made)


def _hosts(size: str, total: int) -> int:
    """Return how many hosts a size means; a percentage is rounded down, and at least one host, as Ansible does."""
    return max(1, total * int(size[:-1]) // 100) if size.endswith("%") else int(size)
