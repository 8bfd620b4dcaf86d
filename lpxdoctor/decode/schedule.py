"""Which request a slot sends next, so that every counted one runs among exactly as many others: no clock, no socket."""

from collections.abc import Callable

from lpxdoctor.decode.samples import Role

_HOPELESS_IN_A_ROW = 8


class Schedule:
    """The order of one rung's work.

    Warm-up requests of every slot have rising lengths, so the slots hand over to counted ones spread over one request's
    duration and not in a burst; cool-down requests keep the load until the last counted answer has ended, and are as
    short as that allows. Every slot is sure to get one counted request.
    """

    def __init__(self, concurrency: int, requests: int, output_len: int) -> None:
        self.requests = max(requests, concurrency)
        self.stopped = ""
        self._concurrency = concurrency
        self._output_len = output_len
        self._free = self.requests - concurrency  # what is not set apart for a slot's first
        self._silent = set(range(concurrency))  # no first token yet
        self._warm: set[int] = set()
        self._counting: set[int] = set()  # slots that have had their first counted request
        self._under_way: set[int] = set()  # slots with a counted request now
        self._failed_in_a_row = 0

    def next(self, slot: int, least_received: Callable[[], int]) -> tuple[Role, int] | None:
        """Return what a slot sends next and how many tokens it asks for, None when its work is done.

        least_received() is how many tokens the youngest counted request has had.
        """
        if self.stopped:
            return None
        if slot not in self._counting:
            if self._silent or slot not in self._warm:
                return Role.WARM_UP, max(1, self._output_len * (slot + 1) // self._concurrency)
            self._counting.add(slot)
        elif self._free:
            self._free -= 1
        elif len(self._counting) < self._concurrency:
            return Role.COOL_DOWN, self._output_len
        elif self._under_way:
            return Role.COOL_DOWN, max(1, self._output_len - least_received())
        else:
            return None
        self._under_way.add(slot)
        return Role.COUNTED, self._output_len

    def had_first_token(self, slot: int) -> None:
        """Note that a slot takes part in the load."""
        self._silent.discard(slot)

    def ended(self, slot: int, *, failed: bool) -> None:
        """Note the end of a slot's request."""
        self._silent.discard(slot)
        self._warm.add(slot)
        self._under_way.discard(slot)
        self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
        if self._failed_in_a_row >= max(_HOPELESS_IN_A_ROW, 2 * self._concurrency):
            self.stopped = f"the last {self._failed_in_a_row} requests all failed"
