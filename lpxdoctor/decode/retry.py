"""A failed request in, whether and when it is made again out: bounded, backing off, and only where time can help."""

_RETRIES = 2
_FIRST_PAUSE_S = 0.2  # a server that refuses is not hammered; no latency contains this
_LONGEST_WAIT_S = 10.0
# Time-outs, broken connections and servers that have no room now. What is wrong with the request itself (too long,
# not valid, not permitted) stays wrong.
_PASSING = ("stall", "connect", "cut", "http-408", "http-429", "http-502", "http-503", "http-504")
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "no available memory")


def pause_s(failure: str, retries: int, retry_after: str = "") -> float | None:
    """Return how long to wait before a request that failed is made again, None when it is not.

    failure is "kind: what was seen", retries how often it has been made again already, retry_after the header of that
    name. A server that asks for more patience than ten seconds is not asked again.
    """
    said = failure.lower()
    passing = failure.partition(":")[0] in _PASSING or any(text in said for text in _OUT_OF_MEMORY)
    if retries >= _RETRIES or not passing:
        return None
    asked_s = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    wait_s = max(asked_s, least_pause_s(retries + 1))
    return wait_s if wait_s <= _LONGEST_WAIT_S else None


def least_pause_s(failures: int) -> float:
    """Return how long a slot rests after so many failures of one request."""
    return float(_FIRST_PAUSE_S * 2 ** max(0, failures - 1))
