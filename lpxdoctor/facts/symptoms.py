"""What a person tells of a host in; the known symptoms among it, which no probe can see, out."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from lpxdoctor.evidence import Answer, Evidence
from lpxdoctor.facts import messages
from lpxdoctor.facts.fact import Fact, NotApplicable, known

KEY = "told"  # in evidence; no probe asks for it


@dataclass(frozen=True)
class Symptom:
    """A symptom: the check that explains it, what it means, and the words that told it."""

    check: str
    meaning: str
    words: str
    ask: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Symptoms(Fact):
    """Everything that was told."""

    symptoms: tuple[Symptom, ...] | None  # None where nobody told anything

    def of(self, check: str) -> tuple[Symptom, ...]:
        """Return the symptoms that a check explains; raise NotApplicable where nobody told of any."""
        if self.symptoms is None:
            raise NotApplicable("nobody told of a symptom: lpxdoctor diagnose --symptom takes one")
        return tuple(symptom for symptom in self.symptoms if symptom.check == check)

    @classmethod
    def parse(cls, evidence: Evidence) -> "Symptoms":
        """Return what was told; never raises."""
        return cls(symptoms=known(partial(_symptoms, evidence.answers.get(KEY))))


def _symptoms(answer: Answer | None) -> tuple[Symptom, ...] | None:
    if answer is None:
        return None
    return tuple(_symptom(raw) for raw in answer.value)


def _symptom(raw: dict[str, Any]) -> Symptom:
    return Symptom(str(raw["check"]), str(raw["meaning"]), str(raw["words"]), tuple(raw["ask"]))


def answer(text: str) -> Answer:
    """Return what a text tells, as an answer to keep in evidence."""
    told = messages.hear(text)
    return Answer(
        [
            {"check": each.proves, "meaning": each.message, "words": each.lines[0][1], "ask": list(each.ask)}
            for each in told
        ]
    )
