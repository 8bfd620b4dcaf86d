"""An engine's answers to a regression set in, and the first engine's; how far they have drifted out.

Two measures. Perplexity: how likely the engine holds the same given text, token by token; nothing that it says itself
steers it, so it tells little drifts of any model, also one with random weights. Agreement: how far greedy answers go
the same way; it goes through decoding as users do, but one near-tie ends it, so it counts only where the first engine
was sure of its answers.

Both are taken of prompts that run alone, which others cannot move, and in a crowd: there are faults of graphs and
kernels that only batches show (pytorch/torchtitan#3668: CUDA graphs of steps that mix prompts and decoding).
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import msgspec

from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.errors import MeasureError, UsageError
from lpxdoctor.files import read_text
from lpxdoctor.policy import Tune
from lpxdoctor.tune.completions import Said, answered, scored

_ANSWER_TOKENS = 32
_CROWD_MOST = 256  # each is a thread here
_SCORERS = 2  # few at a time, so that their prompts are computed while the crowd decodes


class Prompts(msgspec.Struct, frozen=True):
    """A regression set; version names it in results."""

    version: int | str
    prompts: tuple[str, ...]


class Crowd(msgspec.Struct, frozen=True):
    """What an engine made of the set while so many requests ran at once; empty, and why says it, where it failed."""

    at_once: int
    answered: tuple[Said, ...] = ()
    scored: tuple[Said, ...] = ()
    why: str = ""


class Answers(msgspec.Struct, frozen=True):
    """What one engine made of the set; empty, and why says it, where it does not tell probabilities."""

    answered: tuple[Said, ...]
    scored: tuple[Said, ...]
    why: str = ""
    crowd: Crowd = Crowd(0)

    @property
    def sureness(self) -> float:
        """The geometric mean of the probabilities of the tokens it chose; 0 where it told none."""
        told = [one for said in self.answered for one in said.logprobs]
        return math.exp(_mean(told)) if told else 0.0


class Accuracy(msgspec.Struct, frozen=True):
    """The drift; None where it was not measured. wrong is why the engine is not to be used, "" where it may be."""

    perplexity_rise: float | None  # as a share
    agreement: float | None  # share of the greedy tokens before the first other one
    agreement_counts: bool  # the first engine was sure of its answers
    wrong: str = ""


def bundled() -> Prompts:
    """Return the set that comes with lpxdoctor."""
    return msgspec.json.decode(Path(__file__).with_name("prompts.json").read_bytes(), type=Prompts)


def read(path: Path) -> Prompts:
    """Return the prompts of a file, one a line.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    prompts = tuple(line for line in read_text(path).splitlines() if line.strip())
    if not prompts:
        raise UsageError(f"{path} has no prompts: write one a line.")
    return Prompts(path.name, prompts)


def asked(there: Endpoint, model: str, prompts: Prompts, at_once: int, is_stopped: Callable[[], bool]) -> Answers:
    """Put the set to an engine, one prompt after the other, and once more with at_once answers under way."""

    def each(ask: Callable[[str], Said]) -> tuple[tuple[Said, ...], str]:
        try:
            return tuple(ask(prompt) for prompt in prompts.prompts if not is_stopped()), ""
        except MeasureError as error:
            return (), str(error)

    answers, scores = partial(answered, there, model, tokens=_ANSWER_TOKENS), partial(scored, there, model)
    said, why = each(answers)
    told, why_not = each(scores)
    crowd = Crowd(0)
    if told and at_once > 1 and not is_stopped():
        crowd = _crowd(answers, scores, prompts.prompts, min(at_once, _CROWD_MOST))
    return Answers(said, told, why_not or why, crowd)


def _crowd(
    answers: Callable[[str], Said], scores: Callable[[str], Said], prompts: Sequence[str], at_once: int
) -> Crowd:
    """Have at_once answers run together, and the prompts scored meanwhile: steps then mix prompts and decoding."""
    with ThreadPoolExecutor(at_once) as crowd, ThreadPoolExecutor(_SCORERS) as scorers:
        said = crowd.map(answers, islice(cycle(prompts), at_once))
        told = scorers.map(scores, prompts)
        try:
            return Crowd(at_once, tuple(said), tuple(told))
        except MeasureError as error:
            return Crowd(at_once, why=str(error))


def compared(first: Answers, now: Answers, policy: Tune) -> Accuracy:
    """Judge an engine's answers by the first engine's."""
    counts = first.sureness >= policy.sure
    agreement = _agreement(first.answered, now.answered) if first.answered else None
    rise, wrong = _rise(first, now)
    if not wrong and rise is None and not counts:
        wrong = "its answers could not be judged: the engine tells no probabilities of prompts, and was not sure"
    wrong = wrong or _drifted(rise, agreement if counts else None, policy) or _blind(first, now)
    if not wrong and first.crowd.scored:
        wrong = _wrong_in_a_crowd(first.crowd, now.crowd, policy, counts=counts)
    return Accuracy(rise, agreement, counts, wrong)


def _wrong_in_a_crowd(first: Crowd, now: Crowd, policy: Tune, *, counts: bool) -> str:
    rise, wrong = _rise(first, now)
    wrong = wrong or _drifted(rise, _agreement(first.answered, now.answered) if counts else None, policy)
    wrong = wrong or _blind(first, now)
    return wrong and f"among {first.at_once} at once {wrong}"


def _blind(first: Answers | Crowd, now: Answers | Crowd) -> str:
    """Return that an engine chose tokens without a probability where the first engine did not, else ""."""
    before, after = (any(math.isnan(one) for said in each.answered for one in said.logprobs) for each in (first, now))
    return "the probabilities of its own tokens are no numbers" if after and not before else ""


def _drifted(rise: float | None, agreement: float | None, policy: Tune) -> str:
    """Return what is beyond the policy, "" where nothing is."""
    if rise is not None and not rise <= policy.perplexity_rise:  # also where it is not a number
        return f"perplexity rose by {rise:.1%}, more than {policy.perplexity_rise:.0%}"
    if agreement is not None and agreement < policy.agreement:
        return f"only {agreement:.0%} of the greedy tokens are the same, less than {policy.agreement:.0%}"
    return ""


def _rise(first: Answers | Crowd, now: Answers | Crowd) -> tuple[float | None, str]:
    """Return how much the perplexity rose, and what forbids to say so."""
    if not first.scored:
        return None, ""
    if not now.scored:
        return None, now.why or "it did not score the prompts"
    if [said.tokens for said in first.scored] != [said.tokens for said in now.scored]:
        return None, "it splits the prompts into other tokens"
    before, after = (_mean([one for said in each.scored for one in said.logprobs]) for each in (first, now))
    return (math.nan if math.isnan(after) else math.expm1(min(before - after, 100.0))), ""


def _agreement(first: Sequence[Said], now: Sequence[Said]) -> float:
    same = sum(_common(one.tokens, other.tokens) for one, other in zip(first, now, strict=False))
    return same / max(1, sum(len(one.tokens) for one in first))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
