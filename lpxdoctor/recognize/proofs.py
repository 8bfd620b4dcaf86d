"""What a text tells in; proofs for the checks that it is about, with the very lines, out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lpxdoctor.check import Finding, Proof, Seen, Severity
from lpxdoctor.facts import messages
from lpxdoctor.facts.messages import Told
from lpxdoctor.recognize import listed, xids
from lpxdoctor.recognize.text import Pasted


def proofs(forms: Sequence[Pasted], about: Mapping[str, str]) -> tuple[Proof, ...]:
    """Return the proofs in a text, the deepest cause first; for each check the one that proves it most directly.

    Args:
        forms: the text as it was given, and as it reads where its lines are made whole.
        about: what else is known, as messages.tell takes it.
    """
    best: dict[str, tuple[Told, Pasted]] = {}
    beside = "\n".join(form.text for form in forms) if len(forms) > 1 else ""
    for form in forms:
        for told in messages.tell(form.text, about, beside):
            held = best.get(told.proves)
            if held is None or _proves_better(told, held[0]):
                best[told.proves] = told, form
    found = tuple(_proof(told, form) for told, form in best.values())
    mentioned = () if about.get("xids_explained") else xids.proofs(forms[0])
    others = (*listed.proofs(forms[0]), *mentioned)
    return (*found, *(proof for proof in others if proof.id not in best))


def _proves_better(told: Told, held: Told) -> bool:
    """Tell whether a text proves a check more directly, or says the same with more of its numbers and names."""
    more = told.name == held.name and len(told.values) > len(held.values)
    return _rank(told) < _rank(held) or (_rank(told) == _rank(held) and more)


def _rank(told: Told) -> int:
    return messages.SURENESS.index(told.sure)


def _proof(told: Told, pasted: Pasted) -> Proof:
    again = f" ({told.times} times)" if told.times > len(told.lines) else ""
    finding = Finding(
        told.message,
        seen=tuple(_seen(told.lines, pasted, again)),
        do=told.do,
        confirm=told.ask or (f"sudo lpxdoctor check {told.proves}",),
    )
    return Proof(
        id=told.proves,
        finding=finding,
        rank=_rank(told),
        severity=Severity(told.severity) if told.severity else None,
    )


def _seen(lines: Iterable[tuple[int, str]], pasted: Pasted, again: str) -> Iterator[Seen]:
    for number, _ in lines:
        yield pasted.seen(number - 1, again)
        again = ""
