"""Answers in, how far apart the turns of a loop are out: far enough to read many chunks in each, near enough for each.

With the kernel's receive times nothing is lost by reading a little later, and most of the work of a turn is to be woken
for a single chunk.
"""

import time
from collections.abc import Sequence

# Where an answer's chunks come slowly turns are farther apart than at least, as far as no two of its chunks meet in one
# read and no next request is kept waiting. Where two have met, they come less evenly than their mean gap tells.
_LEAST_NS, _MOST_NS = 500_000, 4_000_000
_TURNS_PER_GAP, _TURNS_PER_UNEVEN_GAP, _TURNS_PER_REQUEST = 3, 8, 200


class Pace:
    """The time from one turn to the next, as the last answer tells it."""

    def __init__(self) -> None:
        self.turn_ns = _LEAST_NS

    def rest(self, turned_ns: int) -> None:
        """Sleep until the next turn is due; turned_ns is when the last one was."""
        early_ns = turned_ns + self.turn_ns - time.monotonic_ns()
        if early_ns > 0:
            time.sleep(early_ns / 1e9)

    def note(self, started_ns: int, arrivals_ns: Sequence[int], *, bundled: bool) -> None:
        """Take the times of an answer's chunks: the kernel's, which are right however late they are read.

        bundled: two of them met in one read.
        """
        if len(arrivals_ns) > 1:
            gap_ns = (arrivals_ns[-1] - arrivals_ns[0]) // (len(arrivals_ns) - 1)
            turns = _TURNS_PER_UNEVEN_GAP if bundled else _TURNS_PER_GAP
            longest_ns = min(gap_ns // turns, (arrivals_ns[-1] - started_ns) // _TURNS_PER_REQUEST)
            self.turn_ns = min(max(_LEAST_NS, longest_ns), _MOST_NS)
