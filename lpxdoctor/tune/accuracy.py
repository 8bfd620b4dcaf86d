"""An engine's answers to a regression set in, and the first engine's; how far they have drifted out.

Two measures. Perplexity: how likely the engine holds the same given text, token by token; nothing that it says itself
steers it, so it tells little drifts of any model, also one with random weights. Agreement: how far greedy answers go
the same way; it goes through decoding as users do, but one near-tie ends it, so it counts only where the first engine
was sure of its answers.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from lpxdoctor.decode.endpoint import Endpoint
from lpxdoctor.errors import MeasureError, UsageError
from lpxdoctor.files import read_text
from lpxdoctor.policy import Tune
from lpxdoctor.tune.completions import Said, answered, scored

_ANSWER_TOKENS = 32


class Prompts(msgspec.Struct, frozen=True):
    """A regression set; version names it in results."""

    version: int | str
    prompts: tuple[str, ...]


class Answers(msgspec.Struct, frozen=True):
    """What one engine made of the set; empty, and why says it, where it does not tell probabilities."""

    answered: tuple[Said, ...]
    scored: tuple[Said, ...]
    why: str = ""

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


def asked(there: Endpoint, model: str, prompts: Prompts, is_stopped: Callable[[], bool]) -> Answers:
    """Put the set to an engine, one prompt after the other: in a batch, others would move near-ties."""

    def each(ask: Callable[[str], Said]) -> tuple[tuple[Said, ...], str]:
        try:
            return tuple(ask(prompt) for prompt in prompts.prompts if not is_stopped()), ""
        except MeasureError as error:
            return (), str(error)

    said, why = each(lambda prompt: answered(there, model, prompt, _ANSWER_TOKENS))
    told, why_not = each(lambda prompt: scored(there, model, prompt))
    return Answers(said, told, why_not or why)


def compared(first: Answers, now: Answers, policy: Tune) -> Accuracy:
    """Judge an engine's answers by the first engine's."""
    counts = first.sureness >= policy.sure
    agreement = _agreement(first.answered, now.answered) if first.answered else None
    rise, wrong = _rise(first, now)
    if not wrong and rise is None and not counts:
        wrong = "its answers could not be judged: the engine tells no probabilities of prompts, and was not sure"
    if not wrong and rise is not None and not rise <= policy.perplexity_rise:  # also where it is not a number
        wrong = f"perplexity rose by {rise:.1%}, more than {policy.perplexity_rise:.0%}"
    if not wrong and counts and agreement is not None and agreement < policy.agreement:
        wrong = f"only {agreement:.0%} of the greedy tokens are the same, less than {policy.agreement:.0%}"
    return Accuracy(rise, agreement, counts, wrong)


def _rise(first: Answers, now: Answers) -> tuple[float | None, str]:
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
