"""What a text tells in; proofs for the checks that it is about, with the very lines, out."""

from collections.abc import Iterable, Iterator, Mapping

from lpxdoctor.check import Finding, Proof, Seen, Severity
from lpxdoctor.facts import messages
from lpxdoctor.facts.messages import Told
from lpxdoctor.recognize import xids
from lpxdoctor.recognize.text import Pasted

_LINE_CHARS = 240


def proofs(pasted: Pasted, about: Mapping[str, str]) -> tuple[Proof, ...]:
    """Return the proofs in a text, causes far below first; one for each check, of what proves it most directly."""
    best: dict[str, Told] = {}
    for told in messages.tell(pasted.text, about):
        held = best.get(told.proves)
        if held is None or _rank(told) < _rank(held):
            best[told.proves] = told
    found = tuple(_proof(told, pasted) for told in best.values())
    return (*found, *(proof for proof in xids.proofs(pasted) if proof.id not in best))


def _rank(told: Told) -> int:
    return messages.SURENESS.index(told.sure)


def _proof(told: Told, pasted: Pasted) -> Proof:
    again = f" ({told.times} times)" if told.times > len(told.lines) else ""
    finding = Finding(
        told.message,
        seen=tuple(_seen(told.lines, pasted, again)),
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
        shown = pasted.shown[number - 1].strip()
        yield Seen(
            f"line {pasted.numbers[number - 1]:,}", shown[:_LINE_CHARS] + ("…" if shown[_LINE_CHARS:] else ""), again
        )
        again = ""
