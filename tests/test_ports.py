"""A port for a server that is to start: free, and none that Linux would give a connection meanwhile."""

import socket
from pathlib import Path

import pytest

from lpxdoctor import ports


def test_a_free_port_can_be_bound_and_is_below_those_of_connections() -> None:
    port = ports.free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert port < first


def test_one_that_is_held_is_not_given() -> None:
    held = ports.free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", held))
        with pytest.raises(OSError, match=r"no TCP port of 127\.0\.0\.1 is free"):
            ports.free_port([held])
