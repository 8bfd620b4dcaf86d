"""One of a rung's concurrent requests: its connection, what it is at and what it waits for."""

from dataclasses import dataclass

from lpxdoctor.decode.exchange import Exchange
from lpxdoctor.decode.samples import Role
from lpxdoctor.decode.transport import Transport


@dataclass
class Slot:
    """One of the requests that are under way at once, with its connection."""

    index: int
    prompt: bytes
    transport: Transport | None = None
    exchange: Exchange | None = None
    work: tuple[Role, int] | None = None
    retries: int = 0  # of the request under way, or of the one to be made again
    again_for: str = ""  # the kind of failure that it is to be made again for, "" when it is not
    retried_for: str = ""  # that it has been made again for
    awaited_since_ns: int = 0  # 0: nothing is awaited
    interest: int = 0  # what the selector watches its socket for
