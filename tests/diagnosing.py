"""What tests of diagnoses share: texts as people paste them, by kind of fault, and how they are judged."""

import io
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from lpxdoctor import catalog, policy
from lpxdoctor.check import Check
from lpxdoctor.cli import diagnose
from lpxdoctor.evaluate import Judgement
from lpxdoctor.recognize import recognize

# Pastes of one kind of fault a file, named by the check that must come first; "%%" begins each, with the words that its
# finding must say. They are written by us, in the forms in which programs and people really say these things.
KINDS = Path(__file__).parent / "kinds"
FALLEN = "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."


def pastes() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for path in sorted(KINDS.glob("invented-*.txt")):
        for head, text in re.findall(r"^%%(.*)\n((?:(?!%%).*\n)*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            says = head.partition("says=")[2]
            yield path.stem.removeprefix("invented-"), text, tuple(filter(None, says.split(",")))


PASTES = tuple(pastes())
ILL = [paste for paste in PASTES if paste[0] != "healthy"]
HEALTHY = [text for id_, text, _ in PASTES if id_ == "healthy"]


@lru_cache(maxsize=1)
def checks() -> tuple[Check[...], ...]:
    return catalog.load(None)


def judged(text: str | bytes) -> Judgement:
    data = text.encode() if isinstance(text, str) else text
    return diagnose.judge(recognize(io.BytesIO(data)), checks(), policy.load())
