"""What is asked of the server: lengths and a nonce in, request bodies out, no two prompts of any run alike."""

import json
import random
from dataclasses import dataclass, replace

# Ordinary token ids in every vocabulary in use: control tokens stand below, and none has fewer than 1,000 ids.
_LOWEST_ID, _IDS = 100, 900
_SPELLED = tuple(b"%d" % (_LOWEST_ID + value) for value in range(_IDS))
# Where token ids are refused: words of one token in the tokenizers of the common model families.
_WORDS = ("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "hand")


@dataclass(frozen=True)
class Dialect:
    """How this server wants to be asked; narrowed by the answers to the first warm-up request."""

    token_ids: bool = True  # the prompt as token ids: its length is exact without a tokenizer here
    chunk_usage: bool = True  # running token counts in every chunk: tells how many the first one holds
    # Off unless ignore_eos alone does not hold: in vLLM it adds a logits processor to every step.
    min_tokens: bool = False


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
        """Return the JSON value of a prompt; another number gives another one, without a common beginning."""
        chance = random.Random(f"{self.nonce}.{number}")  # noqa: S311 - unlike others', not secret
        if not self.dialect.token_ids:
            return json.dumps(" ".join(chance.choices(_WORDS, k=self.input_len))).encode()
        values = memoryview(chance.randbytes(2 * self.input_len)).cast("H")
        return b"[" + b",".join([_SPELLED[value % _IDS] for value in values]) + b"]"

    def body(self, prompt: bytes, output_len: int) -> bytes:
        """Return the body of a request for exactly so many tokens."""
        dialect = self.dialect
        return b'{"model":%b,"prompt":%b,"max_tokens":%d,%b"ignore_eos":true,"temperature":0,"stream":true,%b}' % (
            json.dumps(self.model).encode(),
            prompt,
            output_len,
            b'"min_tokens":%d,' % output_len if dialect.min_tokens else b"",
            b'"stream_options":{"include_usage":true%b}'
            % (b',"continuous_usage_stats":true' if dialect.chunk_usage else b""),
        )
