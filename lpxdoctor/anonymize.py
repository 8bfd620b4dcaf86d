"""Evidence in, the same evidence with what identifies a machine replaced by stable placeholders out."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lpxdoctor.evidence import Answer, Evidence

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MACHINE_ID = re.compile(r"\b[0-9a-f]{32}\b")
_MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
# No octet with a leading zero and nothing but space or punctuation before it: package versions look like addresses.
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_IPV4 = re.compile(rf"(?<![\w.:+~-])(?!127\.|0\.0\.0\.0)(?:{_OCTET}\.){{3}}{_OCTET}(?![\w.-])")
_SERIALS = frozenset(("serial", "board_serial"))


def anonymize(evidence: Evidence) -> Evidence:
    """Replace host name, UUIDs, machine id, serial numbers, MAC and IPv4 addresses; equal ones stay equal."""
    seen: dict[str, str] = {}

    def stand_in(form: Callable[[int], str]) -> Callable[[re.Match[str]], str]:
        return lambda match: seen.setdefault(match[0].lower(), form(len(seen) + 1))

    host = re.compile(rf"\b{re.escape(evidence.host)}\b") if evidence.host else None

    def text(value: str) -> str:
        value = _UUID.sub(stand_in(lambda n: f"00000000-0000-0000-0000-{n:012x}"), value)
        value = _MACHINE_ID.sub(stand_in(lambda n: f"{n:032x}"), value)
        value = _MAC.sub(stand_in(lambda n: f"02:00:00:00:{n >> 8 & 255:02x}:{n & 255:02x}"), value)
        value = _IPV4.sub(stand_in(lambda n: f"192.0.2.{n % 255}"), value)
        return host.sub("host", value) if host else value

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, dict):
            return {
                text(key): "0" if key in _SERIALS and isinstance(item, str) else walk(item)
                for key, item in value.items()
            }
        return [walk(item) for item in value] if isinstance(value, list) else value

    def answer(value: Answer) -> Answer:
        return replace(value, value=walk(value.value), reason=text(value.reason))

    return replace(evidence, host="host", answers={key: answer(value) for key, value in evidence.answers.items()})
