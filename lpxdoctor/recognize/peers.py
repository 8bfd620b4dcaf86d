"""What p2pBandwidthLatencyTest printed in, whether GPUs copy slower to each other than through the host out."""

import re

_MATRIX = re.compile(
    r"^[ \t]*(?P<way>Uni|Bi)directional P2P=(?P<mode>Disabled|Enabled) Bandwidth[^\n]*\n"
    r"[ \t]*D\\D[^\n]*\n(?P<rows>(?:[ \t]*\d+(?:[ \t]+\d+\.\d+)+[ \t]*(?:\n|$))+)",
    re.MULTILINE,
)
_SLOWER = 0.5  # of what the same two GPUs reach through the host: beyond what runs differ by


def peers(text: str) -> dict[str, str]:
    """Return {"p2p": "slower", "p2p_told": rates in GB/s} where P2P slows a pair of GPUs down, nothing elsewhere."""
    tables = {(match["way"], match["mode"]): _rates(match["rows"]) for match in _MATRIX.finditer(text)}
    for (way, mode), rates in tables.items():
        without = tables.get((way, "Disabled"))
        if mode == "Disabled" or without is None or rates.keys() != without.keys():
            continue
        slower = {pair: rate / without[pair] for pair, rate in rates.items() if without[pair]}
        pair = min(slower, key=slower.__getitem__, default=None)
        if pair is not None and slower[pair] < _SLOWER:
            told = f"{rates[pair]:g} GB/s from GPU {pair[0]} to GPU {pair[1]}, {without[pair]:g} without P2P"
            return {"p2p": "slower", "p2p_told": told}
    return {}


def _rates(rows: str) -> dict[tuple[int, int], float]:
    """Return the rate of each pair of different GPUs."""
    return {
        (int(fields[0]), to): float(rate)
        for fields in map(str.split, rows.splitlines())
        for to, rate in enumerate(fields[1:])
        if to != int(fields[0])
    }
