"""What a host was asked and what it answered: probes, answers and evidence, as JSON both ways.

Standard library alone and Python 3.9 syntax: this file is sent to managed hosts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Union

SCHEMA = 1


class Unreadable(Exception):  # noqa: N818 - it is a reason first, and raised only where a value was needed
    """Something a fact needs could not be read; str() of it is the reason, for people."""


@dataclass(frozen=True)
class Command:
    """Run a program, never through a shell; it answers {"exit": int, "stdout": str, "stderr": str}."""

    argv: tuple[str, ...]
    timeout_s: float = 10.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return "command:" + " ".join(self.argv)


@dataclass(frozen=True)
class File:
    """Read one file; it answers its text."""

    path: str
    timeout_s: float = 5.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return "file:" + self.path


@dataclass(frozen=True)
class Glob:
    """Read every file that matches a pattern; it answers {path: text}, with null for one that cannot be read."""

    pattern: str
    timeout_s: float = 5.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return "glob:" + self.pattern


@dataclass(frozen=True)
class Listing:
    """List what matches a pattern; it answers {path: entry}, whose fields collect.entry documents."""

    pattern: str
    timeout_s: float = 5.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return "listing:" + self.pattern


@dataclass(frozen=True)
class Http:
    """GET a path of a server of this host; it answers {"status": int, "body": str}.

    server is "unix:/path/to.sock" or "address:port".
    """

    server: str
    path: str
    timeout_s: float = 10.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return f"http:{self.server} {self.path}"


@dataclass(frozen=True)
class Program:
    """Run one of our own small programs in an interpreter of its own; it answers the JSON value that it printed.

    A library that hangs or crashes there takes nothing with it.
    """

    name: str
    argv: tuple[str, ...] = ()
    timeout_s: float = 15.0

    @property
    def key(self) -> str:
        """The name of this question in evidence."""
        return "program:" + " ".join((self.name, *self.argv))


Probe = Union[Command, File, Glob, Listing, Http, Program]


@dataclass(frozen=True)
class Answer:
    """What a probe brought back: a value, or the reason why there is none.

    failure is "" when there is a value, else one word for programs: absent (no such file, program or server),
    denied, timeout, or failed (anything else). reason says it for people.
    """

    value: Any = None
    failure: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """Everything one host answered: a live host, a fleet member, a support bundle and a test fixture alike."""

    host: str
    answers: Mapping[str, Answer] = field(default_factory=dict)
    collected_at: str = ""  # ISO 8601, UTC
    collector: str = ""  # the version of lpxdoctor that asked
    uid: int | None = None  # who asked; None where that is not known

    def value(self, probe: Probe) -> Any:
        """Return a probe's value, or raise Unreadable with the probe's own reason."""
        answer = self.answers.get(probe.key)
        if answer is None:
            raise Unreadable(f"{probe.key} was not asked")
        if answer.failure:
            raise Unreadable(f"{probe.key}: {answer.reason}")
        return answer.value

    def absent(self, probe: Probe) -> bool:
        """Tell whether the host said that there is no such thing, as opposed to not letting us look."""
        answer = self.answers.get(probe.key)
        return answer is not None and answer.failure == "absent"

    def text(self, probe: Command | File) -> str:
        """Return a file's text, or the standard output of a command that ended with 0; else raise Unreadable."""
        value = self.value(probe)
        if isinstance(probe, File):
            return str(value)
        if value["exit"] != 0:
            said = (value["stderr"] or value["stdout"]).strip().splitlines()
            raise Unreadable(f"{probe.key}: exit {value['exit']}" + (f": {said[-1]}" if said else ""))
        return str(value["stdout"])

    def text_or_none(self, probe: Command | File) -> str | None:
        """Return the text, None where the host has no such file or program, or raise Unreadable."""
        return None if self.absent(probe) else self.text(probe)

    def found(self, probe: Glob | Listing) -> dict[str, Any]:
        """Return {path: text or entry} of what matched, empty where nothing did, or raise Unreadable."""
        return {} if self.absent(probe) else dict(self.value(probe))


def to_json(evidence: Evidence) -> str:
    """Return evidence as JSON text, one answer a line and sorted, so that two bundles can be compared."""
    head = {"schema": SCHEMA, **{k: v for k, v in vars(evidence).items() if k != "answers"}}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    answers = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(_sparse(answer), sort_keys=True)}"
        for key, answer in sorted(evidence.answers.items())
    )
    return "{" + ",\n ".join([*lines, f'"answers": {{\n{answers}\n }}']) + "}\n"


def _sparse(answer: Answer) -> dict[str, Any]:
    """Return an answer's fields that differ from the default."""
    return {key: value for key, value in asdict(answer).items() if value != getattr(_NOTHING, key)}


_NOTHING = Answer()


def from_json(text: str) -> Evidence:
    """Return the evidence in JSON text; ValueError says what is wrong with it."""
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("answers"), dict):
        raise ValueError("no evidence: an object with the keys schema, host and answers is expected")  # noqa: TRY004
    if data.get("schema") != SCHEMA:
        raise ValueError(f"evidence of schema {data.get('schema')}; this version reads schema {SCHEMA}")
    known = {f.name for f in fields(Answer)}
    answers = {}
    for key, answer in data["answers"].items():
        if not isinstance(answer, dict) or not set(answer) <= known:
            raise ValueError(f"the answer to {key!r} is no object with the keys {', '.join(sorted(known))}")
        answers[key] = Answer(**answer)
    uid = data.get("uid")
    return Evidence(
        host=str(data.get("host", "")),
        answers=answers,
        collected_at=str(data.get("collected_at", "")),
        collector=str(data.get("collector", "")),
        uid=uid if isinstance(uid, int) else None,
    )
