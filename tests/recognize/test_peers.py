"""What p2pBandwidthLatencyTest printed: a pair of GPUs that P2P slows down is named, others are left alone."""

import pytest

from lpxdoctor.recognize.peers import peers

TABLE = """{way}directional P2P={mode} Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 900.00  {a:.2f}  20.00
     1  {a:.2f} 900.00  20.00
     2  20.00  20.00 900.00
"""


def table(mode: str, rate: float, way: str = "Uni") -> str:
    return TABLE.format(way=way, mode=mode, a=rate)


def test_the_pair_that_loses_most_is_told() -> None:
    told = peers("noise\n" + table("Disabled", 20) + "more\n" + table("Enabled", 1.5))
    assert told == {"p2p": "slower", "p2p_told": "1.5 GB/s from GPU 0 to GPU 1, 20 without P2P"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        table("Enabled", 1.5),  # nothing to compare it to
        table("Disabled", 20) + table("Enabled", 45),
        table("Disabled", 20) + table("Enabled", 12),  # as runs may differ
        table("Disabled", 20) + table("Enabled", 1.5, way="Bi"),
        table("Disabled", 20) + table("Enabled", 1.5).replace("     2  20.00  20.00 900.00\n", ""),  # cut off
        table("Disabled", 0) + table("Enabled", 0),
    ],
)
def test_nothing_is_told_without_a_pair_that_is_slower(text: str) -> None:
    assert peers(text) == {}
