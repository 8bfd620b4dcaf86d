"""What tests of facts and checks build on: evidence of given answers, and facts of which only some is known."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from lpxdoctor.evidence import Answer, Evidence, Unreadable
from lpxdoctor.facts.fact import Fact

F = TypeVar("F", bound=Fact)

# What NVML and CUDA really answered on a machine with one H200, driver 580.159.04; serial and UUID replaced.
H200: Mapping[str, Any] = json.loads((Path(__file__).parent / "data" / "h200.json").read_text(encoding="utf-8"))


def evidence(answers: Mapping[Any, Any], collected_at: str = "2026-11-29T15:16:00Z") -> Evidence:
    """Return the evidence of a host that gave these answers, {probe: value or Answer}."""
    kept = {probe.key: value if isinstance(value, Answer) else Answer(value) for probe, value in answers.items()}
    return Evidence("test", kept, collected_at=collected_at, uid=0)


def command(stdout: str = "", code: int = 0, stderr: str = "") -> dict[str, Any]:
    """Return the value of a command's answer."""
    return {"exit": code, "stdout": stdout, "stderr": stderr}


def only(kind: type[F], **known: Any) -> F:
    """Return a fact that knows these fields, the others being Unreadable."""
    unknown = {field.name: Unreadable(f"{field.name} is not given in this test") for field in fields(kind)}
    return kind(**{**unknown, **known})
