"""What is asked of the server: lengths and a nonce in, request bodies out, no two prompts of any run alike."""

import json
import random
from dataclasses import dataclass, replace
from enum import Enum

# Ordinary token ids in every vocabulary in use: control tokens stand below, and none has fewer than 1,000 ids.
_LOWEST_ID, _IDS = 100, 900
_SPELLED = tuple(b"%d" % (_LOWEST_ID + value) for value in range(_IDS))
# Where token ids are refused: words of one token in the tokenizers of the common model families.
_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "hand")


class ChunkUsage(Enum):
    """When running token counts are asked for in every chunk: they tell how many tokens the first one holds."""

    NEVER = "never"  # the server does not take the question
    WHEN_NEEDED = "when needed"  # once chunks are seen to hold several tokens: counting costs the server time
    ALWAYS = "always"


@dataclass(frozen=True)
class Dialect:
    """How this server wants to be asked; narrowed by the answers to the first warm-up requests."""

    chat: bool = False  # /v1/chat/completions, which takes no token ids, instead of /v1/completions
    only: bool = False  # the other of the two is not tried
    token_ids: bool = True  # the prompt as token ids: its length is exact without a tokenizer here
    words_per_token: float = 1.0  # of text, as this server's tokenizer and template turned out to take it
    chunk_usage: ChunkUsage = ChunkUsage.ALWAYS
    usage: bool = True  # token counts at the end of the stream
    ignore_eos: bool = True
    temperature: bool = True
    # vLLM's: keeps what a chat template puts before every prompt out of the prefix cache.
    cache_salt: bool = True
    max_tokens: str = "max_tokens"  # what the field is called
    # Off unless ignore_eos alone does not hold: in vLLM it adds a logits processor to every step.
    min_tokens: bool = False

    @property
    def path(self) -> str:
        """Where requests go, below the server's URL."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    @property
    def is_exact(self) -> bool:
        """Whether prompts have exactly the length asked for."""
        return self.token_ids and not self.chat


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests of one length; two workloads with the same nonce ask the same."""

    model: str
    input_len: int
    output_len: int
    nonce: str
    dialect: Dialect = Dialect()

    def part(self, name: str) -> "Workload":
        """Return requests of the same kind whose prompts are none of the others'."""
        return replace(self, nonce=f"{self.nonce}.{name}")

    def prompt(self, number: int) -> bytes:
        """Return the members of a request that carry a prompt; another number gives another one from its beginning."""
        name = f"{self.nonce}.{number}"
        chance = random.Random(name)  # noqa: S311 - unlike others', not secret
        if self.dialect.is_exact:
            values = memoryview(chance.randbytes(2 * self.input_len)).cast("H")
            return b'"prompt":[' + b",".join([_SPELLED[value % _IDS] for value in values]) + b"]"
        words = max(1, round(self.input_len * self.dialect.words_per_token))
        text = json.dumps(" ".join(chance.choices(_WORDS, k=words))).encode()
        if not self.dialect.chat:
            return b'"prompt":' + text
        salt = b'"cache_salt":%b,' % json.dumps(name).encode() if self.dialect.cache_salt else b""
        return b'%b"messages":[{"role":"user","content":%b}]' % (salt, text)

    def body(self, prompt: bytes, output_len: int, *, chunk_usage: bool) -> bytes:
        """Return the body of a request for exactly so many tokens; prompt is what prompt() returned."""
        dialect = self.dialect
        chunks = b',"continuous_usage_stats":true' if chunk_usage else b""
        members = (
            b'"model":' + json.dumps(self.model).encode(),
            prompt,
            b'"%b":%d' % (dialect.max_tokens.encode(), output_len),
            b'"min_tokens":%d' % output_len if dialect.min_tokens else b"",
            b'"ignore_eos":true' if dialect.ignore_eos else b"",
            b'"temperature":0' if dialect.temperature else b"",
            b'"stream":true',
            b'"stream_options":{"include_usage":true%b}' % chunks if dialect.usage else b"",
        )
        return b"{" + b",".join(member for member in members if member) + b"}"
