"""A pasted text in; proofs for the Xids that people mention in prose, by the table of what each means, out.

Those that stand there as the driver logs them are evidence, which the checks of the kernel log judge.
"""

import re
from collections.abc import Iterator

from lpxdoctor import knowledge
from lpxdoctor.check import Finding, Proof
from lpxdoctor.facts import messages
from lpxdoctor.knowledge.rows import Xid
from lpxdoctor.recognize.text import Pasted

_MENTIONED = re.compile(
    r"\bXids?(?: (?:errors?|codes?|events?))?[ :#=]*(\d{1,3}(?:(?:, ?| ?/ ?| and | & |\u3001)\d{1,3})*)\b(?![:.]\w)",
    re.IGNORECASE,
)
_CHECKS = {"program": "gpu.xid-program", "driver": "gpu.xid-driver"}


def proofs(pasted: Pasted) -> Iterator[Proof]:
    """Yield a proof for each kind of Xid that is mentioned and that no row of the table of messages is about."""
    seen: set[str] = set()
    for index, line in enumerate(pasted.searched):
        for match in _MENTIONED.finditer(line):
            if messages.denied(line, match.start()):
                continue
            for code in re.findall(r"\d+", match[1]):
                row = knowledge.load().xid(int(code))
                check = _check(row) if row and not messages.has_row(int(code)) else ""
                if row and check and check not in seen:
                    seen.add(check)
                    yield _proof(check, row, pasted, index)


def _check(row: Xid) -> str:
    """Return the check that judges an Xid in the kernel log."""
    if row.group in _CHECKS:
        return _CHECKS[row.group]
    return "gpu.xid-hardware" if row.severity in ("error", "critical") and row.group != "notice" else "gpu.xid-minor"


def _proof(check: str, row: Xid, pasted: Pasted, index: int) -> Proof:
    do = (knowledge.load().xid_actions[row.action], *((row.also,) if row.also else ()))
    seen = (pasted.seen(index),)
    confirm = ("sudo dmesg | grep -e Xid -e NVRM   (which GPU, which process, how often?)",)
    return Proof(check, Finding(f"Xid {row.code}: {row.meaning}", seen=seen, do=do, confirm=confirm), rank=1)
