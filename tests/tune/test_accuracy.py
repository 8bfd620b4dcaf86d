"""The guard: drift is measured against the first engine, and what cannot be judged is not taken for sound."""

import json
import math
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lpxdoctor import policy
from lpxdoctor.decode.endpoint import endpoint
from lpxdoctor.errors import UsageError
from lpxdoctor.tune.accuracy import Answers, Crowd, Prompts, asked, bundled, compared, read
from lpxdoctor.tune.completions import Said
from tests.beside import beside

POLICY = policy.load().tune
TWO = Prompts("test", ("one two three four", "five six seven eight"))


def said(words: str, logprob: float) -> Said:
    tokens = tuple(words.split())
    return Said(tokens, (logprob,) * len(tokens))


def answers(scored: float | None, chosen: str = "a b c d", sure: float = -0.1) -> Answers:
    told = () if scored is None else (said("x y z w", scored),)
    return Answers((said(chosen, sure),), told, "it does not echo" if scored is None else "")


@pytest.mark.parametrize(
    ("first", "now", "wrong"),
    [
        (answers(-2.0), answers(-2.0), ""),
        (answers(-2.0), answers(-2.01), ""),
        (answers(-2.0), answers(-1.0), ""),  # likelier is no fault
        (answers(-2.0), answers(-2.05), "perplexity rose by 5.1%"),
        (answers(-2.0), answers(math.nan), "perplexity rose by nan%"),
        (answers(-2.0), answers(-1e9), "perplexity rose"),
        (answers(-2.0), answers(None), "it does not echo"),
        (answers(None), answers(None), ""),  # sure, and the same: agreement alone judges
        (answers(None), answers(None, "q b c d"), "only 0% of the greedy tokens"),
        (answers(None, sure=-9.0), answers(None, sure=-9.0), "could not be judged"),
        (answers(-2.0), answers(-2.0, "q b c d"), "only 0% of the greedy tokens"),
        (answers(-2.0), answers(-2.0, "a b x d"), ""),  # half of them, and then a near-tie
        (answers(-9.9, sure=-9.9), answers(-9.9, "q r s t", -9.9), ""),  # chance says nothing of decoding
        (answers(-9.9, sure=-9.9), answers(-9.9, sure=math.nan), "probabilities of its own tokens are no numbers"),
    ],
)
def test_drift_is_judged(first: Answers, now: Answers, wrong: str) -> None:
    found = compared(first, now, POLICY)
    assert wrong in found.wrong
    assert bool(found.wrong) == bool(wrong)


def test_another_tokenizer_is_no_comparison() -> None:
    other = Answers(answers(-2.0).answered, (said("x yz w", -2.0),))
    assert "other tokens" in compared(answers(-2.0), other, POLICY).wrong


def test_the_bundled_set_is_versioned_and_varied() -> None:
    prompts = bundled()
    assert prompts.version == 1
    assert len(set(prompts.prompts)) == len(prompts.prompts) >= 12
    assert any(not prompt.isascii() for prompt in prompts.prompts)


def test_a_file_has_one_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "set.txt"
    file.write_text("one\n\n  \ntwo\n")
    assert read(file) == Prompts("set.txt", ("one", "two"))
    file.write_text("\n")
    with pytest.raises(UsageError, match="has no prompts"):
        read(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none")


@contextmanager
def serving(status: int = 200, *, echoes: bool = True, fault: str = "") -> Generator[tuple[str, list[dict[str, Any]]]]:
    """Answer completions as vLLM does: logprobs of the echoed prompt and of the answer; keep what was asked.

    fault is what happens to a request that runs among others, and to none that runs alone: "nan" for probabilities
    that are no numbers, "tokens" for other tokens, "status" for HTTP 500. With one, who is not asked alone is answered
    when all are there.
    """
    seen: list[dict[str, Any]] = []
    running: dict[int, bool] = {}  # by thread: whether another one ran beside it
    changing = threading.Lock()
    crowd = threading.Barrier(8 + len(TWO.prompts))

    class Completions(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wish = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt: Sequence[str] = wish["prompt"].split() if wish.get("echo") and echoes else []
            with changing:
                running.update(dict.fromkeys(running, True))
                running[threading.get_ident()] = bool(running)
                seen.append(wish)
                alone = len(seen) <= 2 * len(TWO.prompts)
            if fault and not alone:
                crowd.wait(60)
            else:
                time.sleep(0.02)
            faulty = fault if running[threading.get_ident()] else ""
            tokens = [*prompt, *["no" if faulty == "tokens" else "ok"] * wish["max_tokens"]]
            logprobs = [None if faulty == "nan" or (prompt and n == 0) else -(n + 1) / 64 for n in range(len(tokens))]
            told = {"choices": [{"logprobs": {"tokens": tokens, "token_logprobs": logprobs}}]}
            self.send_response(500 if faulty == "status" else status)
            self.end_headers()
            with changing:
                del running[threading.get_ident()]
            self.wfile.write(json.dumps(told).encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    with server, beside(server.serve_forever):
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()


def test_an_engine_is_asked_greedily_and_for_the_prompts_own_probabilities() -> None:
    with serving() as (url, seen):
        found = asked(endpoint(url), "m", TWO, 3, lambda: False)
    assert [wish["temperature"] for wish in seen] == [0] * 9  # each alone in both ways, three at once, each among them
    assert [one.tokens for one in found.scored] == [("two", "three", "four"), ("six", "seven", "eight")]
    assert found.scored[0].logprobs == (-2 / 64, -3 / 64, -4 / 64)
    assert len(found.answered[0].tokens) == 32
    assert found.crowd == Crowd(3, (found.answered[0],) * 3, found.scored)


def test_an_engine_that_does_not_echo_or_refuses_is_told_of() -> None:
    with serving(echoes=False) as (url, _):
        found = asked(endpoint(url), "m", TWO, 2, lambda: False)
    assert (len(found.answered), found.scored) == (2, ())
    assert "does not echo" in found.why
    with serving(500) as (url, _):
        assert "HTTP 500" in asked(endpoint(url), "m", TWO, 2, lambda: False).why
    assert "did not answer" in asked(endpoint("http://127.0.0.1:9"), "m", TWO, 2, lambda: False).why


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("", ""),
        ("nan", "among 8 at once perplexity rose by nan%"),
        ("tokens", "among 8 at once only 0% of the greedy tokens are the same"),
        ("status", "among 8 at once"),
    ],
)
def test_an_engine_that_is_wrong_only_where_requests_run_together_is_refused(fault: str, wrong: str) -> None:
    """CUDA graphs of mixed steps did so: sound alone, garbage in a crowd."""
    with serving() as (sound, _), serving(fault=fault) as (url, _):
        first, now = (asked(endpoint(one), "m", TWO, 8, lambda: False) for one in (sound, url))
    assert now.scored == first.scored
    found = compared(first, now, POLICY)
    assert wrong in found.wrong
    assert bool(found.wrong) == bool(wrong)


def test_tokens_without_a_probability_are_refused_in_a_crowd_too() -> None:
    """Of a model with random weights, whose tokens say nothing, this is what garbage looks like."""
    alone = answers(-9.9, sure=-9.9)
    sound, blind = (Crowd(8, (said("a b", sure),), alone.scored) for sure in (-9.9, math.nan))
    found = compared(replace(alone, crowd=sound), replace(alone, crowd=blind), POLICY)
    assert found.wrong == "among 8 at once the probabilities of its own tokens are no numbers"


def test_a_reference_of_before_is_compared_alone() -> None:
    assert compared(answers(-2.0), replace(answers(-2.0), crowd=Crowd(8)), POLICY).wrong == ""
