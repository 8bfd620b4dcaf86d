"""What the layers keep, in; the engine's pool of KV blocks out: bytes a block, blocks a request, and what fits.

It is the arithmetic of vLLM's v1 engine (v1/core/kv_cache_utils.py and kv_cache_interface.py, read at 0.25.1 and
0.32.0), so that its answers are the engine's, to the token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from lpxdoctor.sizing.cache import Attention, Layer, State

BLOCK_TOKENS = 16  # CacheConfig.DEFAULT_BLOCK_SIZE
_LATENT_ALIGNMENT = 128  # of blocks of latent attention beside states
_CONTEXT_MOST = 1 << 40


class Kind(Enum):
    """How many tokens of a request a layer holds."""

    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    STATE = "state"


@dataclass(frozen=True)
class Spec:
    """One layer in the pool: tokens and bytes a page, its reach, and its shape, for only the same may share a group.

    reach is tokens of a window or chunk, and of a state how many copies a request has.
    """

    kind: Kind
    tokens: int
    page_bytes: int
    reach: int = 0
    shape: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class Group:
    """Layers that share one table of blocks."""

    spec: Spec
    layers: int

    def blocks(self, context: int, in_flight: int) -> int:
        """Return the blocks that one request of context tokens takes at most.

        A window moves on only when what is being computed is settled, and may begin inside a block.
        """
        spec = self.spec
        if spec.kind is Kind.STATE:
            return spec.reach
        if spec.kind is Kind.WINDOW:
            return -(-min(spec.reach - 1 + in_flight, context) // spec.tokens) + 1
        if spec.kind is Kind.CHUNK:
            return -(-min(spec.reach + in_flight, context) // spec.tokens)
        return -(-context // spec.tokens)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pool of one GPU.

    Attributes:
        token_bytes: of one token over all layers that keep tokens, without any saving by windows.
        state_bytes: of one request whatever its length.
        block_bytes: of one block: a page for each layer of the widest group.
        groups: each draws its own blocks from the pool.
        reads: (tokens within reach, None for all; bytes of a token) of each layer that keeps tokens.
        in_flight: tokens that may be scheduled and not yet settled.
    """

    token_bytes: int
    state_bytes: int
    block_bytes: int
    groups: tuple[Group, ...]
    reads: tuple[tuple[int | None, int], ...]
    in_flight: int

    def request_blocks(self, context: int) -> int:
        """Return the blocks of a request of context tokens."""
        return sum(group.blocks(context, self.in_flight) for group in self.groups)

    def request_bytes(self, context: int) -> int:
        """Return the bytes of a request of context tokens."""
        return self.request_blocks(context) * self.block_bytes

    def tokens(self, room_bytes: int, context: int) -> int:
        """Return the capacity as vLLM logs it: requests of context tokens at once, a fraction too, times context."""
        blocks = max(room_bytes, 0) // self.block_bytes
        return blocks * context // self.request_blocks(context)

    def requests(self, room_bytes: int, context: int) -> int:
        """Return how many requests of context tokens fit at once; one block of the pool is never given out."""
        return max(max(room_bytes, 0) // self.block_bytes - 1, 0) // self.request_blocks(context)

    def longest(self, room_bytes: int, requests: int, most: int | None) -> int:
        """Return the longest context at which so many requests fit at once, 0 where none does."""
        low, high = 0, most or _CONTEXT_MOST
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.requests(room_bytes, middle) >= requests else (low, middle - 1)
        return low

    def read_bytes(self, context: int) -> int:
        """Return the bytes that one decode step reads for a sequence of context tokens: a window reads what it sees."""
        seen = (size * (context if reach is None else min(context, reach)) for reach, size in self.reads)
        return self.state_bytes + sum(seen)


def pool(
    layers: Sequence[Layer],
    form: str,
    half_bytes: int,
    *,
    tensor_parallel: int = 1,
    in_flight: int = 0,
    block_tokens: int = BLOCK_TOKENS,
    prefix_caching: bool = True,
) -> Pool:
    """Lay out the pool of a model's layers.

    Args:
        layers: at least one.
        form: one of cache.FORMATS.
        half_bytes: bytes of one element of the model's own type.
        tensor_parallel: how many GPUs share the model.
        in_flight: tokens that may be scheduled and not yet settled.
        block_tokens: tokens a block, before the engine enlarges it.
        prefix_caching: whether it is on, as by default.

    Raises:
        UsageError: when the format cannot hold this model's attention.
    """
    attention = [layer for layer in layers if isinstance(layer, Attention)]
    states = [layer for layer in layers if isinstance(layer, State)]
    sizes = [layer.token_bytes(form, half_bytes, tensor_parallel) for layer in attention]
    state_sizes = [state.bytes(half_bytes, tensor_parallel) for state in states]
    if states and sizes:
        alignment = max(block_tokens, _LATENT_ALIGNMENT if attention[0].latent else 0)
        block_tokens = max(block_tokens, alignment * -(-max(state_sizes) // (alignment * sizes[0])))
    specs = [_spec(layer, size, block_tokens) for layer, size in zip(attention, sizes, strict=True)]
    page = max([spec.page_bytes for spec in specs] or state_sizes)
    for state, size in zip(states, state_sizes, strict=True):
        specs.append(Spec(Kind.STATE, block_tokens, max(size, page), state.copies if prefix_caching and sizes else 1))
    groups = _groups(specs)
    return Pool(
        token_bytes=sum(sizes),
        state_bytes=sum(state_sizes),
        block_bytes=max(group.layers * group.spec.page_bytes for group in groups),
        groups=groups,
        reads=tuple((layer.window or layer.chunk, size) for layer, size in zip(attention, sizes, strict=True)),
        in_flight=in_flight,
    )


def _spec(layer: Attention, size: int, tokens: int) -> Spec:
    shape = (layer.heads, layer.key, layer.value)
    if layer.window is not None:
        return Spec(Kind.WINDOW, tokens, size * tokens, layer.window, shape)
    if layer.chunk is not None:
        return Spec(Kind.CHUNK, tokens, size * tokens, layer.chunk, shape)
    return Spec(Kind.FULL, tokens, size * tokens, 0, shape)


def _groups(specs: Sequence[Spec]) -> tuple[Group, ...]:
    """Put layers into groups of equal size, so that any block serves any group."""
    if len({(spec.kind, spec.reach, spec.tokens) for spec in specs}) == 1:
        return _one_group(specs)  # they need the same tokens
    alike: dict[Spec, int] = {}
    largest = max(spec.page_bytes for spec in specs)
    for spec in specs:
        unified = _unified(spec, largest)
        alike[unified] = alike.get(unified, 0) + 1
    fewest, most = min(alike.values()), max(alike.values())
    size = most if most < fewest * 1.5 else fewest
    return tuple(
        Group(spec, -(-(layers - index) // count))
        for spec, layers in alike.items()
        for count in [-(-layers // size)]
        for index in range(count)
    )


def _one_group(specs: Sequence[Spec]) -> tuple[Group, ...]:
    """Put all layers into one group; where their pages differ in size, as one layer whose page is all of them."""
    total = sum(spec.page_bytes for spec in specs)
    if len({spec.page_bytes for spec in specs}) == 1:
        return (Group(specs[0], len(specs)),)
    return (Group(replace(specs[0], page_bytes=total), 1),)


def _unified(spec: Spec, largest: int) -> Spec:
    """Give a layer a page as large as the largest: of more tokens where that comes out even, else with padding."""
    if spec.kind is not Kind.STATE and largest % spec.page_bytes == 0:
        return replace(spec, tokens=spec.tokens * (largest // spec.page_bytes), page_bytes=largest)
    return replace(spec, page_bytes=largest)
