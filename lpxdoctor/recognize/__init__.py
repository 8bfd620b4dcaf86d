"""What people paste or send when something is broken in; evidence, and proofs for checks with the very lines, out."""

from dataclasses import dataclass
from typing import BinaryIO

from lpxdoctor.check import Proof
from lpxdoctor.evidence import Evidence, from_json
from lpxdoctor.recognize import answers, unpack, wrapped
from lpxdoctor.recognize.condense import condense
from lpxdoctor.recognize.context import context
from lpxdoctor.recognize.proofs import proofs
from lpxdoctor.recognize.text import Pasted, pasted


@dataclass(frozen=True)
class Recognition:
    """What was recognized in a text; whole where it is, or holds, evidence that our own probes collected."""

    pasted: Pasted
    about: dict[str, str]
    evidence: Evidence
    proofs: tuple[Proof, ...]
    notes: tuple[str, ...]
    whole: bool

    @property
    def anything(self) -> bool:
        """Whether anything at all was recognized."""
        return bool(self.proofs or self.evidence.answers or self.whole)


def recognize(stream: BinaryIO) -> Recognition:
    """Recognize what a stream holds, plain or packed; raises unpack.Packed for what cannot be unpacked here."""
    kept = unpack.Unpacked()
    text = pasted(condense(unpack.blocks(stream, kept)))
    forms = (text, *wrapped.whole(text))
    about = {name: value for form in reversed(forms) for name, value in context(form.text).items()}
    bundle = next((found for data in kept.bundles if (found := _bundle(data, kept.notes))), None)
    return Recognition(
        pasted=text,
        about=about,
        evidence=bundle or answers.evidence(text, about),
        proofs=proofs(forms, about),
        notes=tuple(dict.fromkeys(kept.notes)),
        whole=bundle is not None,
    )


def _bundle(data: bytes, notes: list[str]) -> Evidence | None:
    """Return the evidence in a file that our own collector wrote, None where it is another, which a note says."""
    try:
        return from_json(data.decode())
    except (ValueError, TypeError, RecursionError) as error:
        notes.append(f"a file looks like evidence of lpxdoctor and is none: {error}")
        return None
