"""What DCGM's own quick diagnostic (`dcgmi diag`, level 1) says in; the tests that failed, and how badly, out."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lpxdoctor.evidence import Command, Evidence, Probe, Unreadable
from lpxdoctor.facts.fact import Fact, known

# Level 1 reads libraries, permissions and health fields within seconds; the higher ones put load on the GPUs.
# Without a host engine that runs already it refuses: nothing is started for it.
DIAG = Command(("dcgmi", "diag", "--run", "1", "--json"), timeout_s=20)

# dcgmErrorSeverity_enum of DCGM 4: what is asked of the operator. DCGM 3 tells none.
_SEVERITIES = {0: "none", 1: "monitor", 2: "isolate", 3: "unknown", 4: "triage", 5: "config", 6: "reset"}
# How the settings that the deployment test looks at are called, where no severity is told.
_SETTINGS = ("persistence mode", "environment", "graphics processes")


@dataclass(frozen=True)
class Warned:
    """A test that did not pass, on one GPU or on all: its words, and what they ask for."""

    test: str
    status: str  # "fail" or "warn"
    gpu: str  # DCGM's number, "" where it tells none
    words: str
    severity: str  # a value of _SEVERITIES, "" where DCGM does not tell it

    @property
    def is_setting(self) -> bool:
        """Whether a setting of the host is meant, with which the GPU works."""
        if self.severity:
            return self.severity in ("config", "none", "monitor")
        return any(name in f"{self.test} {self.words}".casefold() for name in _SETTINGS)

    @property
    def subject(self) -> str:
        """The GPU for people."""
        return f"GPU {self.gpu}" if self.gpu else ""


@dataclass(frozen=True, kw_only=True)
class Dcgm(Fact):
    """DCGM's judgement; installed is False where there is no dcgmi, refusal is why an installed one did not test."""

    probes: ClassVar[tuple[Probe, ...]] = (DIAG,)

    installed: bool
    refusal: str
    warned: tuple[Warned, ...]

    @classmethod
    def parse(cls, evidence: Evidence) -> "Dcgm":
        """Return the facts; never raises."""
        return cls(
            installed=known(lambda: evidence.absent(DIAG) is False and bool(evidence.value(DIAG))),
            refusal=known(lambda: _refusal(evidence)),
            warned=known(lambda: _warned(evidence)),
        )


def _refusal(evidence: Evidence) -> str:
    value = evidence.value(DIAG)
    if "{" in value["stdout"]:
        return ""
    said = f"{value['stdout']}\n{value['stderr']}".strip().splitlines()
    return said[0].strip() if said else f"dcgmi ended with {value['exit']} and said nothing"


def _warned(evidence: Evidence) -> tuple[Warned, ...]:
    text = evidence.value(DIAG)["stdout"]
    return warnings(text) if "{" in text else ()


def warnings(text: str) -> tuple[Warned, ...]:
    """Return the tests that did not pass; noise before the JSON is DCGM's own.

    Source: the JSON of DCGM 3 ("DCGM GPU Diagnostic", gpu_ids, upper-case states, null among the tests) and of DCGM 4
    ("DCGM Diagnostic", entity_id, warnings as objects with error_severity), as its sources and public captures show.

    Raises:
        Unreadable: no test is told, which must not pass for health.
    """
    document = json.loads(text[text.index("{") :])
    root: dict[str, Any] = next(
        (value for name, value in document.items() if name.startswith("DCGM") and name.endswith("ostic")), {}
    )
    error = root.get("runtime_error") or root.get("Runtime Error") or ""
    tests = [test for category in root.get("test_categories") or () for test in category.get("tests") or () if test]
    results = [(test["name"], result) for test in tests for result in _results(test)]
    if not results:
        raise Unreadable(f"dcgmi told no test{f': {error}' if error else ''}")
    return tuple(dict.fromkeys(each for name, result in results for each in _of(name, result)))


def _results(test: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a test's results; DCGM 4 repeats what concerns no single GPU in a summary."""
    results = [result for result in test.get("results") or () if result]
    return results or [summary for summary in [test.get("test_summary")] if summary]


def _of(name: str, result: Mapping[str, Any]) -> Iterator[Warned]:
    status = str(result.get("status", "")).casefold()
    if status not in ("fail", "warn"):
        return
    number = result.get("entity_id", result.get("gpu_ids", ""))
    gpu = "" if "," in str(number) else str(number)
    told: list[Any] = list(result.get("warnings") or [{}])
    for each in told:
        warning: dict[str, Any] = each if isinstance(each, dict) else {"warning": each}
        severity = _SEVERITIES.get(warning["error_severity"], "unknown") if "error_severity" in warning else ""
        yield Warned(name, status, gpu, str(warning.get("warning", "")) or "it gives no reason", severity)
