"""TCP ports of this machine: nothing in, one that nobody holds out."""

import contextlib
import random
import socket
from collections.abc import Sequence

# Linux gives connections their own port from 32768 on by itself (ip_local_port_range): one from there may be taken
# between the look and its use, and who asks a port of there whether anybody answers may get hold of itself.
BELOW_THOSE_OF_CONNECTIONS = range(20_000, 32_768)


def free_port(among: Sequence[int] = BELOW_THOSE_OF_CONNECTIONS) -> int:
    """Return a TCP port of 127.0.0.1 that nobody holds; OSError where all are taken."""
    for port in random.sample(among, k=len(among)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no TCP port of 127.0.0.1 is free")
