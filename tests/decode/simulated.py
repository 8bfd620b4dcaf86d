"""A pure simulation of a serving engine with one limit at a time: a server and a concurrency in, a judged rung out.

Steps take a + b x batch + bytes / bandwidth, with noise of their own and of the run; requests wait for a place of
max_num_seqs or for the KV cache, which preempts when it runs full; an API process sends what the engine has computed,
and merges tokens when it falls behind.
"""

import random
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from lpxdoctor.decode.ceiling import Served, ceilings
from lpxdoctor.decode.gauges import Reading, summary
from lpxdoctor.decode.gpu import Card
from lpxdoctor.decode.profile import EngineDelta, GpuUse, Rung
from lpxdoctor.decode.samples import Recording, Role, Sample
from lpxdoctor.decode.validity import judge
from lpxdoctor.sizing.fields import Fields
from lpxdoctor.sizing.model import describe
from tests.decode.recordings import ON_TIME

PER_SLOT = 4
_POLL_MS = 20.0  # as many readings a rung as a real one of some seconds gets
QWEN = describe(
    Fields(
        {
            "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "torch_dtype": "bfloat16",
            "max_position_embeddings": 32768, "tie_word_embeddings": False,
        },
        "config.json",
    ),
    (),
    name="shape-of-7b",
    served="/model",
)  # fmt: skip
BUSY = GpuUse(
    index=0, name="NVIDIA H200", samples=10, utilization_mean=97.0, sm_clock_mhz=(1980, 1980),
    memory_clock_mhz=(3201, 3201), temperature_max_c=60, power_max_w=600.0, memory_mib=(130_000, 130_000),
    slowed_share={}, process_groups=1,
)  # fmt: skip
H200 = Card(capability="9.0", memory_clock_mhz=3201, bus_width_bits=6016, cores=16896)
WEIGHTS_MS, KV_MS_PER_TOKEN = 14.14e9 / 4.8143e9, 57344 / 4.8143e9  # at its full bandwidth


@dataclass(frozen=True, kw_only=True)
class Server:
    """What limits it; times in milliseconds, noise as a share."""

    fixed_ms: float = 1.0
    per_sequence_ms: float = 0.002
    efficiency: float = 0.85  # of the bandwidth
    prompt: int = 64
    output: int = 24
    max_num_seqs: int = 1 << 30
    kv_tokens: int = 1 << 30
    send_ms: float = 0.0  # of the API process, for each chunk
    merges: bool = True  # tokens that wait for the API process become one chunk; else each waits for its own
    interval: int = 1  # tokens a chunk, as --stream-interval has it
    step_noise: float = 0.05
    run_noise: float = 0.02
    client_up_to: int = 1 << 30  # at once; beyond, the client has not enough processor time
    has_gauges: bool = True


@dataclass(eq=False, slots=True)
class _Request:
    slot: int
    role: Role
    wanted: int
    started: float
    made: int = 0
    made_at: float = 0.0
    unsent: int = 0
    first: int = 0
    arrivals: list[float] = field(default_factory=list)


class _Run:
    """One rung under way; times in milliseconds."""

    def __init__(self, server: Server, concurrency: int, chance: random.Random) -> None:
        self.server, self.concurrency, self.chance = server, concurrency, chance
        self.pace = max(0.5, chance.gauss(1, server.run_noise))
        self.now = self.api_free = self.polled = 0.0
        self.incoming: list[tuple[float, _Request]] = []
        self.waiting: deque[_Request] = deque()
        self.running: list[_Request] = []
        self.unsent: dict[_Request, None] = {}
        self.used = self.preempted = 0
        self.gap_ms = self.queue_ms = self.prefill_ms = 0.0
        self.gaps = self.begun = 0
        self.counted = [0] * concurrency
        self.left = concurrency * PER_SLOT
        self.samples: list[Sample] = []
        self.readings: list[Reading] = []
        for slot in range(concurrency):
            wanted = max(1, server.output * (slot + 1) // concurrency)
            self.incoming.append((0.0, _Request(slot, Role.WARM_UP, wanted, 0.0)))

    def go(self) -> None:
        while self.left:
            self._admit()
            if self.running:
                self._step()
            else:
                arriving = [at for at, _ in self.incoming]
                self.now = max(self.now, self.api_free if self.unsent else min(arriving))
            if self.unsent and (self.api_free <= self.now or not self.server.merges):
                self._send()
            if self.now - self.polled >= _POLL_MS:
                self._poll()
        for request in (*self.running, *self.waiting):  # cool-down requests under way, which real ones end with
            if request.arrivals:
                self.samples.append(self._sample(request))

    def _admit(self) -> None:
        arrived = [request for at, request in self.incoming if at <= self.now]
        if arrived:
            self.incoming = [(at, request) for at, request in self.incoming if at > self.now]
            self.waiting.extend(arrived)
        server = self.server
        while self.waiting and len(self.running) < server.max_num_seqs:
            needed = server.prompt + self.waiting[0].made
            if self.used + needed + len(self.running) >= server.kv_tokens:
                return
            self.used += needed
            request = self.waiting.popleft()
            if not request.made:
                self.begun += 1
                self.queue_ms += self.now - request.started
                request.made_at = self.now
            self.running.append(request)

    def _step(self) -> None:
        server = self.server
        while self.used + len(self.running) > server.kv_tokens:
            last = self.running.pop()
            self.used -= server.prompt + last.made
            self.waiting.appendleft(last)
            self.preempted += 1
        memory = (WEIGHTS_MS + self.used * KV_MS_PER_TOKEN) / server.efficiency
        step = server.fixed_ms + server.per_sequence_ms * len(self.running) + memory
        self.now += step * self.pace * max(0.3, self.chance.gauss(1, server.step_noise))
        self.used += len(self.running)
        for request in self.running:
            if request.made:
                self.gaps += 1
                self.gap_ms += self.now - request.made_at
            else:
                self.prefill_ms += self.now - request.made_at
            request.made += 1
            request.made_at = self.now
            request.unsent += 1
            self.unsent[request] = None
            if request.made == request.wanted:
                self.used -= server.prompt + request.made
        self.running = [request for request in self.running if request.made < request.wanted]

    def _send(self) -> None:
        """Send a chunk for each request with new tokens; what came meanwhile is read after the last of them."""
        at = max(self.now, self.api_free)
        ended: list[tuple[float, _Request]] = []
        kept = {
            request: None
            for request in self.unsent
            if 0 < request.unsent < self.server.interval and request.arrivals and request.made < request.wanted
        }
        for request in self.unsent:
            if request in kept:
                continue
            at += self.server.send_ms
            request.first = request.first or request.unsent
            request.arrivals.append(at)
            request.unsent = 0
            if request.made == request.wanted:
                ended.append((at, request))
        self.unsent = kept
        self.api_free = at
        for ended_at, request in ended:
            self.samples.append(self._sample(request))
            self.left -= request.role is Role.COUNTED
            self.incoming.append((max(at, ended_at), self._next(request.slot, ended_at)))

    def _next(self, slot: int, at: float) -> _Request:
        self.counted[slot] += 1
        role = Role.COUNTED if self.counted[slot] <= PER_SLOT else Role.COOL_DOWN
        return _Request(slot, role, self.server.output, at)

    def _poll(self) -> None:
        self.polled = self.now
        self.readings.append(
            Reading(
                at_ns=round(self.now * 1e6),
                running=len(self.running),
                waiting=len(self.waiting),
                kv_cache=self.used / self.server.kv_tokens,
            )
        )

    def _sample(self, request: _Request) -> Sample:
        arrivals = array("q", [round(at * 1e6) for at in request.arrivals])
        return Sample(
            role=request.role,
            slot=request.slot,
            started_ns=round(request.started * 1e6),
            arrivals_ns=arrivals,
            ended_ns=arrivals[-1],
            tokens=request.made - request.unsent,
            tokens_known=True,
            first_tokens=request.first,
            first_tokens_known=True,
            prompt_tokens=self.server.prompt,
        )


def measured(server: Server, concurrency: int, chance: random.Random) -> Rung:
    """Return what a run at one concurrency would leave in a profile."""
    run = _Run(server, concurrency, chance)
    run.go()
    wall_ns = round(run.now * 1e6)
    cpu = 0.95 if concurrency > server.client_up_to else 0.1
    recording = Recording(
        concurrency=concurrency,
        asked=concurrency * PER_SLOT,
        output_len=server.output,
        samples=tuple(run.samples),
        client=replace(ON_TIME, wall_ns=wall_ns, cpu_ns=round(cpu * wall_ns)),
    )
    tokens = sum(sample.tokens for sample in run.samples)
    engine = EngineDelta(
        generation_tokens=tokens,
        received_tokens=tokens,
        prefix_cache_hit_rate=0.0,
        preemptions=float(run.preempted),
        ttft_mean_ms=None,
        inter_token_mean_ms=run.gap_ms / run.gaps if run.gaps else None,
        queue_mean_ms=run.queue_ms / run.begun if run.begun else None,
        prefill_mean_ms=run.prefill_ms / run.begun if run.begun else None,
    )
    rung = judge(
        recording,
        engine=engine if server.has_gauges else None,
        gpus=(BUSY,),
        kv_cache_tokens=server.kv_tokens,
        block_size=1,
        input_len=server.prompt,
    )
    return msgspec.structs.replace(rung, load=summary(run.readings) if server.has_gauges else None)


def climbed(server: Server, concurrencies: Sequence[int], seed: int, *, ceiling: bool = True) -> tuple[Rung, ...]:
    """Measure one rung after the other, and put the ceilings of a 7 B shape on an H200 to them."""
    chance = random.Random(seed)
    rungs = tuple(measured(server, concurrency, chance) for concurrency in concurrencies)
    if not ceiling:
        return rungs
    served = Served(model=QWEN, where="config.json", arguments=(), cache_dtype="auto")
    found = ceilings(rungs, served, ("NVIDIA H200",), (H200,))
    assert not isinstance(found, str), found
    return found[0]
