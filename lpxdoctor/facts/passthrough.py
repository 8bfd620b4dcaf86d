"""What came of trying CUDA in a container by each path in, which paths work and why the others do not out."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lpxdoctor import knowledge
from lpxdoctor.facts import messages
from lpxdoctor.facts.messages import Match

# What a person calls each path, in the order in which they are preferred.
PATHS: Mapping[str, str] = {"CDI": "CDI", "--gpus": "--gpus", "--runtime": "--runtime=nvidia"}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One path: how far the container came, and what CUDA said in it."""

    path: str  # a key of PATHS
    command: str  # what a person types for the same
    stage: str  # create, start, run or late
    refusal: str  # what Docker said, "" where it started the container
    stderr: str
    skipped: str  # why CUDA was not tried in it, "" where it was
    call: str  # the call of CUDA that failed, "" where none did
    code: int  # and with what: CUDA's code; -1 hung, -2 crashed, -3 no library
    name: str
    uuids: tuple[str, ...]
    answered: bool  # whether the program in the container printed its answer

    @property
    def label(self) -> str:
        """The path's name for people."""
        return PATHS[self.path]

    @property
    def started(self) -> bool:
        """Whether Docker started the container and CUDA was tried in it."""
        return self.answered and not self.skipped

    @property
    def works(self) -> bool:
        """Whether cuInit succeeded in the container and it saw a GPU."""
        return self.started and not self.call and bool(self.uuids)

    @property
    def known(self) -> Match | None:
        """The known error in what Docker and the container said, None where it is none of the known."""
        found = messages.find(f"{self.refusal}\n{self.stderr}\n{self.name}")
        return found[0] if found else None

    @property
    def reason(self) -> str:
        """What went wrong, in the words of who said it."""
        if self.refusal:
            return self.refusal
        if not self.answered:
            return self.stderr.rpartition("\n")[2] or "the program in the container printed nothing"
        if self.call:
            return f"{self.call}: {self.name}" + (f" ({self.code})" if self.code > 0 else "")
        return "" if self.uuids else "CUDA started and saw no GPU"


def trials(answer: Mapping[str, Any]) -> tuple[Trial, ...]:
    """Return the trials of images/probe/passthrough.py's answer, the preferred path first."""
    order = list(PATHS)
    return tuple(sorted((_trial(each) for each in answer["paths"]), key=lambda trial: order.index(trial.path)))


def _trial(raw: Mapping[str, Any]) -> Trial:
    said = raw["stdout"] if isinstance(raw["stdout"], dict) else None
    error = (said or {}).get("error") or {}
    code = int(error.get("code", 0))
    row = knowledge.load().cuda_error(code) if code > 0 else None
    return Trial(
        path=raw["path"],
        command=shlex.join(raw["argv"]),
        stage=raw["stage"],
        refusal=raw["error"],
        stderr=raw["stderr"],
        skipped=(said or {}).get("skipped", ""),
        call=error.get("call", ""),
        code=code,
        name=error.get("name", "") or (row.name if row else f"error {code}" if error else ""),
        uuids=tuple(device["uuid"] for device in (said or {}).get("devices", ()) if device.get("uuid")),
        answered=said is not None,
    )
