"""Servers that are simulated: a seed, a slow-down and kinds of noise in, the profile of a baseline of them out."""

import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from lpxdoctor.decode import noise
from lpxdoctor.decode.kept import Samples
from lpxdoctor.decode.profile import Profile, Rung
from tests.decode.recordings import recording, steady
from tests.decode.test_profile import PROFILE
from tests.decode.test_validity import judged

_STEPS = 128  # of a rung's time


@dataclass(frozen=True, kw_only=True)
class Server:
    """All noise is a standard deviation as a share.

    spells: of the step time, with spells that last a memory of so many steps of 128; run: of a whole run, the same for
    all of its requests; request: of one request alone. TTFT is three times as noisy.
    """

    slower: float = 0.0
    spells: float = 0.0
    memory: float = 8.0
    run: float = 0.0
    request: float = 0.0
    concurrencies: tuple[int, ...] = (1, 8, 32)
    repeats: int = 1
    per_slot: int = 4


@cache
def _plain() -> Rung:
    return judged(recording(steady()))


def measured(server: Server, seed: object) -> Profile:
    """Return a profile as a run against this server leaves it; another seed, another run."""
    chance = random.Random(f"{seed}")
    rungs = tuple(_rung(server, one, chance) for _ in range(server.repeats) for one in server.concurrencies)
    identity = f"{zlib.crc32(f'{server} {seed}'.encode()):08x}"[:6]
    return msgspec.structs.replace(PROFILE, id=identity, rungs=rungs, pooled_variance=noise.pooled(rungs))


def _rung(server: Server, concurrency: int, chance: random.Random) -> Rung:
    whole = (1 + server.slower) * math.exp(chance.gauss(0, server.run))
    pace = [whole * one for one in _spells(server, chance)]
    requests = max(16, server.per_slot * concurrency)
    length = max(1, _STEPS * concurrency // requests)  # steps that a request takes
    starts = sorted(chance.randrange(_STEPS) for _ in range(requests))
    own = [math.exp(chance.gauss(0, server.request)) for _ in starts]
    tpot = [5 * one * _mean(pace[start : start + length]) for start, one in zip(starts, own, strict=True)]
    ttft = [20 * pace[start] * math.exp(chance.gauss(0, 3 * server.request)) for start in starts]
    block = _STEPS // 16
    tokens = [200 * concurrency / _mean(pace[n * block : (n + 1) * block]) for n in range(16)]
    samples = Samples(ttft_ms=tuple(ttft), tpot_ms=tuple(tpot), block_s=1.0, block_tokens=tuple(tokens))
    return msgspec.structs.replace(_plain(), concurrency=concurrency, requests=requests, samples=samples)


def _spells(server: Server, chance: random.Random) -> Sequence[float]:
    keep = math.exp(-1 / server.memory)
    state, found = chance.gauss(0, 1), list[float]()
    for _ in range(_STEPS):
        state = keep * state + math.sqrt(1 - keep * keep) * chance.gauss(0, 1)
        found.append(math.exp(server.spells * state))
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
